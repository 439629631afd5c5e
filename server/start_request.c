#include "start_request.h"
#include <string.h>
#include "base/alloc.h"
#include "json_fields.h"

enum { MAX_CANVAS = 1 << 17, MAX_KEPT = 1 << 16 };

static bool read_tokens(dg_chat *out, const json_t *list, int n_vocab, dg_http_error *e)
{
    size_t i, n = json_array_size(list);
    json_t *v;
    if (!n || n > MAX_CANVAS)
        return dg_refuse(e, 400, "invalid_value", "diffusion.canvas.tokens",
                         "diffusion.canvas.tokens: wanted a list of 1 to %d token ids", MAX_CANVAS);
    out->canvas = dg_array(n, sizeof *out->canvas);
    out->pinned = dg_calloc(n, sizeof *out->pinned);
    if (!out->canvas || !out->pinned)
        return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory for the request");
    json_array_foreach(list, i, v)
    {
        json_int_t id = json_is_null(v) ? -1 : json_integer_value(v);
        if ((!json_is_integer(v) && !json_is_null(v)) || id < -1 || id >= n_vocab)
            return dg_refuse(e, 400, "invalid_value", "diffusion.canvas.tokens",
                             "diffusion.canvas.tokens[%zu]: wanted a token id below %d, or null "
                             "where nothing is known",
                             i, n_vocab);
        out->canvas[i] = (int32_t)id;
    }
    out->options.canvas = out->canvas;
    out->options.pinned = out->pinned;
    out->options.n_canvas = n;
    return true;
}

/* A list of pairs of numbers in ascending order, the second at most `n`; -1: not that. */
static bool read_span(const json_t *v, size_t n, size_t *first, size_t *end)
{
    const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
        json_integer_value(a) < 0 || json_integer_value(b) < json_integer_value(a) ||
        (uint64_t)json_integer_value(b) > n)
        return false;
    *first = (size_t)json_integer_value(a);
    *end = (size_t)json_integer_value(b);
    return true;
}

static bool read_kept(dg_chat *out, const json_t *keep, dg_http_error *e)
{
    size_t i, first, end, n = out->options.n_canvas;
    json_t *v;
    if (json_array_size(keep) > MAX_KEPT)
        return dg_refuse(e, 400, "invalid_value", "diffusion.canvas.keep",
                         "diffusion.canvas.keep: more than %d spans", MAX_KEPT);
    json_array_foreach(keep, i, v)
    {
        if (!read_span(v, n, &first, &end))
            return dg_refuse(e, 400, "invalid_value", "diffusion.canvas.keep",
                             "diffusion.canvas.keep[%zu]: wanted [first, end] of %zu tokens", i, n);
        memset(out->pinned + first, 1, end - first);
    }
    for (i = 0; i < n; i++)
        if (out->pinned[i] && out->canvas[i] < 0)
            return dg_refuse(e, 400, "invalid_value", "diffusion.canvas.keep",
                             "diffusion.canvas.keep: nothing is known of token %zu", i);
    return true;
}

static const dg_field canvas_fields[] = {
    {"strength", DG_FIELD_FLOAT, offsetof(dg_chat, options.strength), 0, 1},
};

bool dg_canvas_read(dg_chat *out, json_t *diffusion, int n_vocab, dg_http_error *e)
{
    json_t *canvas, *tokens, *keep;
    const char *key;
    json_t *value;
    if (!dg_field_object(diffusion, "canvas", &canvas, e))
        return false;
    if (!canvas)
        return true;
    json_object_foreach(canvas, key, value)
    {
        if (strcmp(key, "tokens") != 0 && strcmp(key, "keep") != 0 && strcmp(key, "strength") != 0)
            return dg_refuse(e, 400, "unknown_field", "diffusion.canvas",
                             "diffusion.canvas: \"%.40s\" is not known; tokens, keep and strength "
                             "are",
                             key);
    }
    bool ok = dg_fields_read(out, canvas, "diffusion.canvas.", canvas_fields, 1, e) &&
              dg_field_list(canvas, "tokens", &tokens, e) &&
              dg_field_list(canvas, "keep", &keep, e) && read_tokens(out, tokens, n_vocab, e) &&
              read_kept(out, keep, e);
    json_object_del(diffusion, "canvas");
    return ok;
}

bool dg_canvas_gap(dg_raw_prompt *p, const char *before, const char *passage, const char *after,
                   dg_http_error *e)
{
    p->text = NULL;
    p->before = dg_strdup(before);
    p->passage = passage ? dg_strdup(passage) : NULL;
    p->after = dg_strdup(after);
    return (p->before && p->after && (!passage || p->passage)) ||
           dg_refuse(e, 503, "out_of_memory", NULL, "out of memory for the request");
}
