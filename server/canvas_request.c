#include "canvas_request.h"
#include <limits.h>
#include "base/alloc.h"
#include "base/common.h"
#include "json_fields.h"

static const char seeds[] = "vllm_xargs.diffusion_seed_canvas",
                  pins[] = "vllm_xargs.diffusion_pinned", ids[] = "logprob_token_ids";

static bool read_list(const json_t *object, const char *name, const char *where, int n_most,
                      int32_t **out, size_t *n, dg_http_error *e)
{
    const json_t *list = dg_field_get(object, name);
    *n = 0;
    if (!list)
        return true;
    if (!json_is_array(list))
        return dg_refuse(e, 400, "invalid_type", where, "%s: wanted a list of numbers", where);
    return dg_field_ids(list, n_most, where, out, n, e);
}

/* Which positions of the canvas stay; without the list none does. */
static bool read_pins(dg_chat *c, const json_t *args, dg_http_error *e)
{
    int32_t *at = NULL;
    size_t n, width = c->read.n_tokens;
    if (!read_list(args, "diffusion_pinned", pins, (int)width, &at, &n, e))
        return false;
    c->read_pinned = dg_calloc(width + 1, sizeof *c->read_pinned);
    for (size_t i = 0; c->read_pinned && i < n; i++)
        c->read_pinned[at[i]] = 1;
    dg_free(at);
    c->read.pinned = c->read_pinned;
    return c->read_pinned || dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
}

/* The canvas as it was sent, or noise. */
static bool read_seeds(dg_chat *c, const json_t *args, const dg_chat_limits *limits,
                       dg_http_error *e)
{
    size_t n, width = (size_t)c->options.canvas_length;
    if (!read_list(args, "diffusion_seed_canvas", seeds, limits->n_vocab, &c->read_tokens, &n, e))
        return false;
    if (c->read_tokens && n != width)
        return dg_refuse(e, 400, "invalid_value", seeds,
                         "%s has %zu tokens, the canvas %zu: diffusion_canvas_length says how many",
                         seeds, n, width);
    if (!c->read_tokens && dg_field_get(args, "diffusion_pinned"))
        return dg_refuse(e, 400, "invalid_value", pins, "%s goes with diffusion_seed_canvas", pins);
    if (!c->read_tokens) {
        c->read_tokens = dg_array(width, sizeof *c->read_tokens);
        for (size_t i = 0; c->read_tokens && i < width; i++)
            c->read_tokens[i] = -1;
    }
    c->read.tokens = c->read_tokens;
    c->read.n_tokens = width;
    return c->read_tokens || dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
}

static bool read_ids(dg_chat *c, const dg_chat_limits *limits, dg_http_error *e)
{
    if (!read_list(c->root, ids, ids, limits->n_vocab, &c->read_ids, &c->read.n_ids, e))
        return false;
    c->read.ids = c->read_ids;
    return c->read.n_ids <= DGEMMA_MAX_READ_IDS ||
           dg_refuse(e, 400, "invalid_value", ids, "%s: %zu tokens, at most %d", ids, c->read.n_ids,
                     DGEMMA_MAX_READ_IDS);
}

/* vLLM's tokens that end an answer. */
static bool read_stop_tokens(dg_chat *c, const dg_chat_limits *limits, dg_http_error *e)
{
    static const char name[] = "stop_token_ids";
    size_t *n = &c->options.n_stop_tokens;
    if (!read_list(c->root, name, name, limits->n_vocab, &c->stop_tokens, n, e))
        return false;
    c->options.stop_tokens = c->stop_tokens;
    return *n <= DGEMMA_MAX_STOP_TOKENS ||
           dg_refuse(e, 400, "invalid_value", name, "%s: %zu tokens, at most %d", name, *n,
                     DGEMMA_MAX_STOP_TOKENS);
}

bool dg_openai_read_canvas(dg_chat *c, const dg_chat_limits *limits, dg_http_error *e)
{
    static const dg_field fields[] = {
        {"diffusion_max_steps", DG_FIELD_INT, offsetof(dg_chat, options.max_denoise_steps), 1,
         100000},
        {"diffusion_canvas_length", DG_FIELD_INT, offsetof(dg_chat, options.canvas_length), 1,
         INT_MAX},
        {"diffusion_read_only", DG_FIELD_BOOL, offsetof(dg_chat, reads), 0, 0},
        {"diffusion_constrained", DG_FIELD_BOOL, offsetof(dg_chat, read_among), 0, 0},
    };
    json_t *args;
    const json_t *as_ids = dg_field_get(c->root, "return_tokens_as_token_ids");
    c->tokens_as_ids = json_is_true(as_ids);
    if (!read_stop_tokens(c, limits, e))
        return false;
    if (!dg_field_object(c->root, "vllm_xargs", &args, e) ||
        !dg_fields_read(c, args, "vllm_xargs.", fields, DG_COUNT(fields), e))
        return false;
    if (!c->reads && (dg_field_get(args, "diffusion_seed_canvas") ||
                      dg_field_get(args, "diffusion_pinned") || c->read_among))
        return dg_refuse(e, 400, "unsupported", "vllm_xargs",
                         "vllm_xargs: a canvas that is brought along is read, with "
                         "diffusion_read_only, and not written on");
    if (!c->reads && dg_field_get(c->root, ids))
        return dg_refuse(e, 400, "unsupported", ids,
                         "%s goes with vllm_xargs.diffusion_read_only: answers are written over "
                         "several steps, and have top_logprobs",
                         ids);
    if (!c->reads)
        return true;
    int most = limits->defaults.canvas_length;
    if (c->options.canvas_length > most)
        return dg_refuse(e, 400, "invalid_value", "vllm_xargs.diffusion_canvas_length",
                         "vllm_xargs.diffusion_canvas_length: 1 to %d are possible", most);
    if (c->stream)
        return dg_refuse(e, 400, "unsupported", "stream", "stream: a read comes in one piece");
    if (!read_ids(c, limits, e) || !read_seeds(c, args, limits, e) || !read_pins(c, args, e))
        return false;
    if (c->read_among && (c->options.max_denoise_steps > 1 || !c->read.n_ids))
        return dg_refuse(e, 400, "unsupported", "vllm_xargs.diffusion_constrained",
                         "vllm_xargs.diffusion_constrained goes with logprob_token_ids and with "
                         "diffusion_max_steps 1");
    return true;
}
