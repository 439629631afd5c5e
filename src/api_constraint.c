/* The public functions for constraints by themselves. */
#include <string.h>
#include "base/alloc.h"
#include "dgemma_tools.h"
#include "engine/constraint_data.h"

enum { TEXT_MAX = 1 << 24, IGNORED_MAX = 1 << 20 };

static dg_calls_mode calls_of(dgemma_tool_choice choice)
{
    return choice == DGEMMA_TOOLS_AUTO   ? DG_CALLS_AUTO
           : choice == DGEMMA_TOOLS_NONE ? DG_CALLS_NONE
                                         : DG_CALLS_REQUIRED;
}

static bool is_whole(const dgemma_constraint_options *opt)
{
    bool bare = opt->kind == DGEMMA_CONSTRAINT_JSON_OBJECT || opt->kind == DGEMMA_CONSTRAINT_CHOICE;
    return opt->kind <= DGEMMA_CONSTRAINT_TOOLS && (bare || opt->text) &&
           (!opt->answer || (!opt->answer->answer && is_whole(opt->answer)));
}

static dg_constraint_options options_of(const dgemma_constraint_options *opt, dg_buf *ignored)
{
    return (dg_constraint_options){.kind = (dg_constraint_kind)opt->kind,
                                   .text = opt->text,
                                   .len = opt->text_len,
                                   .choices = opt->choices,
                                   .n_choice = opt->n_choices,
                                   .compact = opt->compact,
                                   .lenient = opt->lenient,
                                   .ignored = ignored,
                                   .calls = calls_of(opt->tool_choice),
                                   .single_call = opt->single_tool_call};
}

dgemma_status dgemma_constraint_create(dgemma_constraint **out,
                                       const dgemma_constraint_options *opt, dgemma_error *err)
{
    if (!is_whole(opt))
        return dg_fail(err, DGEMMA_E_ARG, "there is no constraint");
    dgemma_constraint *c = dg_calloc(1, sizeof *c);
    if (!c)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    atomic_init(&c->n_holder, 1);
    pthread_mutex_init(&c->lock, NULL);
    dg_buf_init(&c->ignored, IGNORED_MAX);
    dg_constraint_options options = options_of(opt, &c->ignored), answer;
    if (opt->answer) {
        answer = options_of(opt->answer, &c->ignored);
        options.answer = &answer;
    }
    dgemma_status st = dg_constraint_compile(&c->syntax, &options, err);
    if (!st)
        st = dg_language_create(&c->language, c->syntax, err);
    if (st)
        dgemma_constraint_free(c);
    else
        *out = c;
    return st;
}

void dgemma_constraint_free(dgemma_constraint *c)
{
    dg_constraint_release(c);
}

dgemma_constraint *dgemma_constraint_hold(dgemma_constraint *c)
{
    return dg_constraint_hold(c);
}

const char *dgemma_constraint_ignored(const dgemma_constraint *c)
{
    return c->ignored.data ? c->ignored.data : "";
}

/* Walks over the text, from the start. A long text may meet more places than an automaton keeps:
 * then it forgets them, once in every piece. */
static dgemma_status walk(dgemma_constraint *c, const char *text, size_t len, dg_place *at,
                          size_t *n, dgemma_error *err)
{
    *at = dg_language_start(c->language);
    for (*n = 0; *n < len;) {
        dgemma_error why = {0};
        size_t more;
        dgemma_status st =
            dg_language_walk_names(c->language, at, text + *n, len - *n, &more, &why);
        *n += more;
        if (!st)
            break;
        if (st == DGEMMA_E_LIMIT && more)
            st = dg_language_forget(c->language, at, &why);
        if (st)
            return dg_fail(err, st, "%s", why.msg);
    }
    return DGEMMA_OK;
}

dgemma_status dgemma_constraint_check(dgemma_constraint *c, const char *text, size_t len,
                                      dgemma_match *match, dgemma_error *err)
{
    dg_place at;
    dg_edges e;
    *match = (dgemma_match){0};
    pthread_mutex_lock(&c->lock);
    dgemma_status st = walk(c, text, len, &at, &match->n, err);
    if (!st)
        st = dg_language_edges(c->language, at, &e, err);
    for (size_t i = 0; !st && i < e.n_bytes; i++)
        memset(match->next + e.bytes[i].lo, true, (size_t)(e.bytes[i].hi - e.bytes[i].lo) + 1);
    if (!st) {
        match->could_end = e.accepts;
        match->n_tokens = e.n_symbols;
        match->verdict = match->n < len ? DGEMMA_REJECTED
                         : e.accepts    ? DGEMMA_ACCEPTED
                                        : DGEMMA_PREFIX;
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* Special tokens of a text that is being made go into it by their names. */
typedef struct name_writer {
    const dg_syntax *syntax;
    dg_buf *out;
    bool failed;
} name_writer;

static void write_name(void *user, uint32_t symbol)
{
    name_writer *w = user;
    w->failed |= !dg_symbol_write(&w->syntax->symbol[symbol], w->out);
}

/* A buffer becomes the caller's. */
static dgemma_status hand_over(dgemma_status st, bool failed, dg_buf *from, char **text,
                               size_t *len, dgemma_error *err)
{
    if (!st && (failed || !dg_buf_append(from, "", 0)))
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st && !from->data)
        from->data = dg_strdup("");
    if (!st && !from->data)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (st) {
        dg_buf_clear(from);
        return st;
    }
    *text = from->data;
    *len = from->len;
    return DGEMMA_OK;
}

dgemma_status dgemma_constraint_complete(dgemma_constraint *c, const char *text, size_t len,
                                         char **rest, size_t *rest_len, dgemma_error *err)
{
    dg_place at;
    size_t n;
    dg_buf out;
    dg_buf_init(&out, TEXT_MAX);
    pthread_mutex_lock(&c->lock);
    dgemma_status st = walk(c, text, len, &at, &n, err);
    if (!st && n < len)
        st = dg_fail(err, DGEMMA_E_ARG, "nothing in the language begins like that");
    name_writer w = {.syntax = c->syntax, .out = &out};
    if (!st)
        st = dg_language_ending(c->language, at, &out, write_name, &w, err);
    pthread_mutex_unlock(&c->lock);
    return hand_over(st, w.failed, &out, rest, rest_len, err);
}

dgemma_status dgemma_constraint_random(dgemma_constraint *c, uint64_t seed, uint32_t index,
                                       size_t length, char **text, size_t *len, dgemma_error *err)
{
    dg_buf out;
    dg_rng_key key = {.seed = seed, .block = index};
    name_writer w = {.syntax = c->syntax, .out = &out};
    dg_buf_init(&out, TEXT_MAX);
    pthread_mutex_lock(&c->lock);
    dgemma_status st = dg_language_draw(c->language, &key, length, &out, write_name, &w, err);
    if (st == DGEMMA_E_LIMIT) {
        /* too many places were met before: without them, from the beginning */
        dg_place start = dg_language_start(c->language);
        dg_buf_clear(&out);
        st = dg_language_forget(c->language, &start, err);
        if (!st)
            st = dg_language_draw(c->language, &key, length, &out, write_name, &w, err);
    }
    pthread_mutex_unlock(&c->lock);
    return hand_over(st, w.failed, &out, text, len, err);
}

dgemma_constraint_size dgemma_constraint_measure(dgemma_constraint *c)
{
    pthread_mutex_lock(&c->lock);
    dg_language_size l = dg_language_measure(c->language);
    pthread_mutex_unlock(&c->lock);
    const dg_syntax *s = c->syntax;
    size_t bytes = s->cap_node * (sizeof *s->node + sizeof *s->ending) +
                   s->cap_child * sizeof *s->child + s->cap_set * sizeof *s->set + s->cap_text +
                   s->n_slot * sizeof *s->slot;
    return (dgemma_constraint_size){s->n_node, l.n_place, l.n_edge, l.bytes + bytes};
}
