/* POST /v1/edit: passages of a text are written anew, each a gap of its own. */
#include <ctype.h>
#include <string.h>
#include "base/alloc.h"
#include "constraint_request.h"
#include "start_request.h"
#include "json_fields.h"
#include "json_text.h"
#include "openai_request.h"
#include "translate.h"

enum { MAX_RANGES = 16 };

typedef struct edit {
    dg_translation t;
    const char *text, *instruction;
    size_t len;
    json_t *ranges, *messages;
    bool keep_length;
    size_t start[MAX_RANGES], end[MAX_RANGES]; /* bytes of text */
    size_t n;
} edit;

/* The byte where code point `n` of the text begins, from byte `at`, which is code point *seen. */
static bool find_byte(const edit *d, json_int_t n, size_t *at, json_int_t *seen)
{
    while (*seen < n) {
        if (*at == d->len)
            return false;
        do
            ++*at;
        while (*at < d->len && ((unsigned char)d->text[*at] & 0xC0) == 0x80);
        ++*seen;
    }
    return *seen == n;
}

static bool wrong_range(edit *d, size_t i)
{
    return dg_refuse(d->t.e, 400, "invalid_value", "ranges",
                     "ranges[%zu]: wanted [start, end] in code points of the text, in ascending "
                     "order and apart from each other",
                     i);
}

/* Blanks at its ends stay outside: words are written with the blank before them. */
static void trim(const edit *d, size_t *start, size_t *end)
{
    while (*start < *end && isspace((unsigned char)d->text[*start]))
        ++*start;
    while (*end > *start && isspace((unsigned char)d->text[*end - 1]))
        --*end;
}

static bool read_ranges(edit *d)
{
    size_t i, at = 0;
    json_int_t seen = 0;
    json_t *v;
    if (!dg_field_list(d->t.root, "ranges", &d->ranges, d->t.e))
        return false;
    size_t n = json_array_size(d->ranges);
    if (!n || n > MAX_RANGES)
        return dg_refuse(d->t.e, 400, "invalid_value", "ranges",
                         "ranges: wanted a list of 1 to %d pairs [start, end]", MAX_RANGES);
    json_array_foreach(d->ranges, i, v)
    {
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
        if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
            json_integer_value(a) < seen || json_integer_value(b) < json_integer_value(a) ||
            !find_byte(d, json_integer_value(a), &at, &seen))
            return wrong_range(d, i);
        d->start[i] = at;
        if (!find_byte(d, json_integer_value(b), &at, &seen))
            return wrong_range(d, i);
        d->end[i] = at;
        trim(d, &d->start[i], &d->end[i]);
        if (d->keep_length && d->start[i] == d->end[i])
            return dg_refuse(d->t.e, 400, "invalid_value", "ranges",
                             "ranges[%zu]: there is nothing in it, whose length could stay", i);
        d->n++;
    }
    return true;
}

/* A length that is to be found starts as noise. */
static bool read_lengths(edit *d)
{
    const char *lengths;
    const json_t *strength = dg_field_get(d->t.root, "strength");
    double s = strength ? json_number_value(strength) : 1;
    if (strength && (!json_is_number(strength) || !(s >= 0 && s <= 1)))
        return dg_refuse(d->t.e, 400, "invalid_value", "strength",
                         "strength: wanted a number from 0 to 1");
    if (!dg_field_string(d->t.root, "lengths", &lengths, d->t.e))
        return false;
    bool same = lengths && !strcmp(lengths, "same"), find = lengths && !strcmp(lengths, "auto");
    if (lengths && !same && !find)
        return dg_refuse(d->t.e, 400, "invalid_value", "lengths",
                         "lengths: \"same\" and \"auto\" are known");
    if (find && s < 1)
        return dg_refuse(d->t.e, 400, "invalid_value", "strength",
                         "strength: below 1 a passage keeps its length: \"lengths\": \"same\"");
    d->keep_length = same || s < 1;
    return true;
}

/* The conversation in which the text is an answer; an instruction goes with what was asked. */
static bool read_messages(edit *d)
{
    size_t i;
    json_t *v;
    if (!dg_field_list(d->t.root, "messages", &d->messages, d->t.e))
        return false;
    json_array_foreach(d->messages, i, v)
    {
        if (!json_is_string(json_object_get(v, "content")))
            return dg_refuse(d->t.e, 400, "invalid_value", "messages",
                             "messages[%zu]: wanted a message whose content is text", i);
    }
    size_t n = json_array_size(d->messages);
    json_t *last = json_array_get(d->messages, n ? n - 1 : 0);
    if (n && !dg_json_says(json_object_get(last, "role"), "user"))
        return dg_refuse(d->t.e, 400, "invalid_value", "messages",
                         "messages: the last is a user's, the text is the answer to it");
    if (n && d->instruction &&
        json_object_set_new(last, "content",
                            json_sprintf("%s\n\n(%s)",
                                         json_string_value(json_object_get(last, "content")),
                                         d->instruction)))
        d->t.no_memory = true;
    return true;
}

static bool read_text(edit *d)
{
    const json_t *text = dg_field_get(d->t.root, "text");
    const json_t *n = dg_field_get(d->t.root, "n");
    if (!json_is_string(text))
        return dg_refuse(d->t.e, 400, "invalid_type", "text", "text: wanted text");
    if (n && json_integer_value(n) != 1)
        return dg_refuse(d->t.e, 400, "unsupported", "n", "n: one result; others by other seeds");
    d->text = json_string_value(text);
    d->len = json_string_length(text);
    return dg_field_string(d->t.root, "instruction", &d->instruction, d->t.e);
}

/* From bytes [start, end) to a string of its own; NULL: memory is out. */
static char *piece(const edit *d, size_t start, size_t end)
{
    char *out = dg_malloc(end - start + 1);
    if (out) {
        memcpy(out, d->text + start, end - start);
        out[end - start] = '\0';
    }
    return out;
}

static bool make_gaps(edit *d, dg_chat *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < d->n; i++) {
        dg_raw_prompt *p = &out->prompts[i];
        *p = (dg_raw_prompt){.before = piece(d, 0, d->start[i]),
                             .passage = piece(d, d->start[i], d->end[i]),
                             .after = piece(d, d->end[i], d->len),
                             .start = d->start[i],
                             .end = d->end[i]};
        ok = p->before && p->passage && p->after;
    }
    if (ok && json_array_size(d->messages))
        ok = (out->messages = dg_json_dump(d->messages, NULL)) != NULL;
    else
        out->options.instruction = d->instruction;
    out->options.keep_length = d->keep_length;
    return ok || dg_refuse(d->t.e, 503, "out_of_memory", NULL, "out of memory for the request");
}

bool dg_edit_read(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                  dg_http_error *e)
{
    edit d = {0};
    dg_translate_begin(&d.t, root, limits, seed, e);
    bool ok = dg_constraint_absent(root, e) && read_text(&d) && read_lengths(&d) &&
              read_ranges(&d) && read_messages(&d);
    json_t *prompts = json_array();
    for (size_t i = 0; ok && i < d.n; i++)
        dg_translate_add(&d.t, prompts, json_string(""));
    dg_translate_set(&d.t, "prompt", prompts);
    dg_translate_copy(&d.t, "max_tokens", "max_tokens");
    json_incref(root); /* the gaps are made of it */
    ok = dg_translate_end(&d.t, ok, dg_openai_read_completion, out);
    if (ok) {
        const json_t *strength = dg_field_get(root, "strength");
        const json_t *drafts = json_object_get(dg_field_get(root, "diffusion"), "drafts");
        out->options.strength = strength ? (float)json_number_value(strength) : 1;
        out->options.drafts = out->stream && json_is_true(drafts);
        ok = make_gaps(&d, out);
        if (!ok)
            dg_chat_clear(out);
    }
    json_decref(root);
    return ok;
}
