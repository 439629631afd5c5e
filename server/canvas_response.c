#include "canvas_response.h"
#include <string.h>
#include "base/alloc.h"
#include "json_text.h"
#include "openai_response.h"

static void begin_stream(dg_generation *g)
{
    (void)g; /* nothing is said before there is something to say */
}

/* ---- /infill ---- */

static json_t *infill_end(const dg_generation *g, json_t *content)
{
    dgemma_stats s;
    dg_generation_stats(g, &s);
    return json_pack("{s:i,s:o,s:b,s:s,s:i,s:i,s:b,s:s,s:o}", "index", 0, "content", content,
                     "stop", 1, "model", g->cfg.model, "tokens_predicted", s.n_output,
                     "tokens_evaluated", s.n_prompt, "truncated", 0, "stop_type",
                     s.end == DGEMMA_END_LENGTH ? "limit" : "eos", "timings", dg_openai_timings(g));
}

static void infill_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    (void)c;
    if (e->kind == DGEMMA_EVENT_TEXT)
        dg_exchange_event(g->cfg.to, json_pack("{s:i,s:o,s:b}", "index", 0, "content",
                                               dg_json_text(e->text, e->text_len), "stop", 0));
}

static void infill_done(dg_generation *g)
{
    if (!g->chat.stream) {
        dg_exchange_reply(g->cfg.to, 200, infill_end(g, dg_json_buf(&g->choices[0].text)));
        return;
    }
    dg_exchange_event(g->cfg.to, infill_end(g, json_string("")));
    dg_exchange_close(g->cfg.to);
}

const dg_dialect dg_infill = {
    .content_type = "text/event-stream",
    .begin = begin_stream,
    .event = infill_event,
    .end = infill_done,
    .fail = dg_openai_fail,
    .ping = dg_sse_ping,
    .error = dg_error_object,
};

/* ---- /v1/edit ---- */

static size_t count_points(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Tokens of the longer of two texts that are not at the beginning or at the end of both. */
static size_t changed_tokens(const dg_generation *g, const char *a, const char *b)
{
    const char *text[2] = {a, b};
    int32_t *ids[2] = {0};
    size_t n[2] = {0};
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) {
        size_t len = strlen(text[i]);
        ids[i] = dg_array(len + 1, sizeof *ids[i]);
        ok = ids[i] &&
             !dgemma_tokenize(g->cfg.engine, text[i], len, false, ids[i], len, &n[i], NULL);
    }
    size_t least = n[0] < n[1] ? n[0] : n[1], most = n[0] + n[1] - least, front = 0, back = 0;
    while (ok && front < least && ids[0][front] == ids[1][front])
        front++;
    while (ok && back < least - front && ids[0][n[0] - 1 - back] == ids[1][n[1] - 1 - back])
        back++;
    dg_free(ids[0]);
    dg_free(ids[1]);
    return most - front - back;
}

/* At strength 0 nothing changes, not even what no token spells. */
static const char *replacement(const dg_generation *g, size_t i)
{
    const dg_choice *c = &g->choices[i];
    if (g->chat.options.strength == 0)
        return g->chat.prompts[i].passage;
    return c->text.data ? c->text.data : "";
}

static json_t *edit_result(const dg_generation *g)
{
    const json_t *asked = json_object_get(g->chat.root, "asked");
    const char *text = json_string_value(json_object_get(asked, "text"));
    size_t at = 0, changed = 0, n_point = 0;
    float agreement = 1;
    dgemma_stats stats;
    json_t *ranges = json_array(), *out = NULL;
    dg_buf whole;
    dg_buf_init(&whole, (size_t)1 << 30);
    dg_generation_stats(g, &stats);
    bool ok = text != NULL;
    for (size_t i = 0; ok && i < g->n_choice; i++) {
        const dg_raw_prompt *p = &g->chat.prompts[i];
        const char *now = replacement(g, i);
        ok = dg_buf_append(&whole, text + at, p->start - at) && dg_buf_puts(&whole, now);
        n_point += count_points(text + at, p->start - at);
        size_t end = n_point + count_points(now, strlen(now));
        dg_json_add(&ranges, json_pack("[I,I]", (json_int_t)n_point, (json_int_t)end));
        changed += changed_tokens(g, p->passage, now);
        float here = g->choices[i].stats.agreement;
        agreement = here < agreement ? here : agreement;
        n_point = end;
        at = p->end;
    }
    ok = ok && dg_buf_puts(&whole, text + at);
    if (ok)
        out = json_pack("{s:s,s:s,s:o,s:o,s:I,s:f,s:i,s:i,s:I,s:o}", "object", "edit", "model",
                        g->cfg.model, "text", dg_json_buf(&whole), "ranges", ranges,
                        "changed_tokens", (json_int_t)changed, "agreement", (double)agreement,
                        "steps", stats.n_steps, "tries", stats.n_tries, "seed",
                        (json_int_t)g->chat.options.seed, "timings", dg_openai_timings(g));
    else
        json_decref(ranges);
    dg_buf_clear(&whole);
    return out;
}

static void edit_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    if (e->kind == DGEMMA_EVENT_DRAFT)
        dg_exchange_event(g->cfg.to, json_pack("{s:s,s:i,s:o}", "object", "edit.draft", "range",
                                               c->index, "diffusion", dg_openai_draft(g, e)));
}

static void edit_done(dg_generation *g)
{
    json_t *result = edit_result(g);
    if (!g->chat.stream) {
        dg_exchange_reply(g->cfg.to, 200, result);
        return;
    }
    dg_exchange_event(g->cfg.to, result);
    dg_exchange_write(g->cfg.to, "data: [DONE]\n\n", 14);
    dg_exchange_close(g->cfg.to);
}

const dg_dialect dg_edit = {
    .content_type = "text/event-stream",
    .begin = begin_stream,
    .event = edit_event,
    .end = edit_done,
    .fail = dg_openai_fail,
    .ping = dg_sse_ping,
    .error = dg_error_object,
};
