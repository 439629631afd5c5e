#include "canvas_request.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "json_fields.h"

static const char seeds[] = "vllm_xargs.diffusion_seed_canvas",
                  pins[] = "vllm_xargs.diffusion_pinned", ids[] = "logprob_token_ids",
                  samples[] = "vllm_xargs.diffusion_samples";

/* Log-probabilities in the answers to one request. */
enum { MAX_TOLD = 1 << 18 };

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

/* The same canvas with other noise, as so many choices: what is not pinned is drawn anew for each.
 */
static bool read_samples(dg_chat *c, const json_t *args, int n, const dg_chat_limits *limits,
                         dg_http_error *e)
{
    if (n > limits->max_choices)
        return dg_refuse(e, 400, "invalid_value", samples, "%s is %d: 1 to %d are possible",
                         samples, n, limits->max_choices);
    if (n > 1 && !dg_field_get(args, "diffusion_pinned"))
        return dg_refuse(e, 400, "invalid_value", samples,
                         "%s goes with diffusion_seed_canvas and diffusion_pinned", samples);
    if (n > 1 && c->n_choice != 1)
        return dg_refuse(e, 400, "invalid_value", samples, "%s does not go with n", samples);
    for (size_t i = 0; n > 1 && i < c->read.n_tokens; i++)
        if (!c->read_pinned[i])
            c->read_tokens[i] = -1;
    c->n_choice = n > 1 ? n : c->n_choice;
    return true;
}

/* Arguments of other models pass; one of these that is not known would be missed. */
static bool refuse_unknown(const json_t *args, dg_http_error *e)
{
    static const char *const known[] = {"diffusion_seed_canvas",   "diffusion_pinned",
                                        "diffusion_canvas_length", "diffusion_max_steps",
                                        "diffusion_read_only",     "diffusion_constrained",
                                        "diffusion_samples"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)args, key, value)
    {
        char name[sizeof e->param];
        size_t i = 0;
        while (i < DG_COUNT(known) && strcmp(known[i], key) != 0)
            i++;
        snprintf(name, sizeof name, "vllm_xargs.%s", key);
        if (i == DG_COUNT(known) && !strncmp(key, "diffusion_", 10))
            return dg_refuse(e, 400, "unknown_parameter", name, "%s: not known", name);
    }
    return true;
}

bool dg_openai_read_canvas(dg_chat *c, const dg_chat_limits *limits, dg_http_error *e)
{
    static const dg_field fields[] = {
        {"diffusion_max_steps", DG_FIELD_INT, offsetof(dg_chat, options.max_denoise_steps), 1,
         100000},
        {"diffusion_canvas_length", DG_FIELD_INT, offsetof(dg_chat, options.canvas_length), 1,
         INT_MAX},
        {"diffusion_read_only", DG_FIELD_SWITCH, offsetof(dg_chat, reads), 0, 0},
        {"diffusion_constrained", DG_FIELD_SWITCH, offsetof(dg_chat, read.among), 0, 0},
    };
    static const dg_field sample_field = {"diffusion_samples", DG_FIELD_INT, 0, 1, 32};
    int n_sample = 1;
    json_t *args;
    static const dg_field as_ids = {"return_tokens_as_token_ids", DG_FIELD_SWITCH,
                                    offsetof(dg_chat, tokens_as_ids), 0, 0};
    if (!read_stop_tokens(c, limits, e) || !dg_fields_read(c, c->root, "", &as_ids, 1, e))
        return false;
    if (!dg_field_object(c->root, "vllm_xargs", &args, e) || !refuse_unknown(args, e) ||
        !dg_fields_read(c, args, "vllm_xargs.", fields, DG_COUNT(fields), e) ||
        !dg_fields_read(&n_sample, args, "vllm_xargs.", &sample_field, 1, e))
        return false;
    int most = limits->defaults.canvas_length;
    if ((c->reads || dg_field_get(args, "diffusion_canvas_length")) &&
        c->options.canvas_length > most)
        return dg_refuse(e, 400, "invalid_value", "vllm_xargs.diffusion_canvas_length",
                         "vllm_xargs.diffusion_canvas_length: 1 to %d are possible", most);
    if (!c->reads && (dg_field_get(args, "diffusion_seed_canvas") ||
                      dg_field_get(args, "diffusion_pinned") || c->read.among || n_sample > 1))
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
    if (c->stream)
        return dg_refuse(e, 400, "unsupported", "stream", "stream: a read comes in one piece");
    if (!read_ids(c, limits, e) || !read_seeds(c, args, limits, e) || !read_pins(c, args, e))
        return false;
    if (c->read.among && !c->read.n_ids)
        return dg_refuse(e, 400, "invalid_value", "vllm_xargs.diffusion_constrained",
                         "vllm_xargs.diffusion_constrained goes with logprob_token_ids");
    return read_samples(c, args, n_sample, limits, e);
}

bool dg_openai_check_canvas(const dg_chat *c, dg_http_error *e)
{
    if (!c->reads || !c->logprobs)
        return true;
    size_t others = c->read.n_ids ? c->read.n_ids : (size_t)c->options.n_logprobs,
           n_choice = (size_t)c->n_choice * (c->n_prompt ? c->n_prompt : 1),
           n = n_choice * c->read.n_tokens * (others + 1);
    return n <= MAX_TOLD ||
           dg_refuse(e, 400, "limit_exceeded", c->read.n_ids ? ids : "logprobs",
                     "%zu log-probabilities of all choices together, at most %d", n, MAX_TOLD);
}
