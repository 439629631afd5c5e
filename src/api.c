/* The public functions: argument checks, and the way from public options to the engine's own. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "dgemma.h"
#include "engine/engine.h"
#include "text/chat_template.h"

/* An answer's length unless the caller says otherwise. */
enum { DEFAULT_MAX_TOKENS = 4096 };

const char *dgemma_version(void)
{
    return DGEMMA_VERSION;
}

void dgemma_free(void *p)
{
    dg_free(p);
}

/* ---- the engine ---- */

dgemma_engine_options dgemma_engine_defaults(void)
{
    return (dgemma_engine_options){.kv_type = DGEMMA_KV_BF16};
}

dgemma_status dgemma_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                                 dgemma_error *err)
{
    if (!out || !opt || !opt->model_path)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    if (opt->n_threads < 0)
        return dg_fail(err, DGEMMA_E_ARG, "%d threads asked for", opt->n_threads);
    if (opt->context_length < 0)
        return dg_fail(err, DGEMMA_E_ARG, "a context of %d tokens asked for", opt->context_length);
    if (opt->kv_type != DGEMMA_KV_BF16 && opt->kv_type != DGEMMA_KV_F32)
        return dg_fail(err, DGEMMA_E_ARG, "unknown kv_type %d", (int)opt->kv_type);
    return dg_engine_open(out, opt, err);
}

void dgemma_engine_close(dgemma_engine *engine)
{
    dg_engine_close(engine);
}

void dgemma_engine_info(const dgemma_engine *e, dgemma_model_info *info)
{
    size_t weights = 0;
    for (size_t i = 0; i < dg_checkpoint_count(e->loaded.checkpoint); i++)
        weights += dg_checkpoint_at(e->loaded.checkpoint, i)->bytes;
    int rows = dg_forward_max_row(e->forward);
    *info = (dgemma_model_info){
        .n_vocab = e->loaded.cfg.n_vocab,
        .n_layer = e->loaded.cfg.n_layer,
        .n_embd = e->loaded.cfg.n_embd,
        .n_expert = e->loaded.cfg.n_expert,
        .n_expert_used = e->loaded.cfg.n_expert_used,
        .context_length = e->n_context,
        .canvas_length = e->loaded.cfg.canvas_length,
        .has_tokenizer = e->loaded.tokenizer != NULL,
        .has_chat_template = e->loaded.tokenizer && dg_chat_supported(e->loaded.tokenizer),
        .backend = e->be->name,
        .n_threads = e->n_thread,
        .weight_bytes = weights,
        .work_bytes = dg_forward_bytes(e->model, e->kv, rows, 1),
        .request_bytes = dg_request_bytes(&e->loaded.cfg, e->loaded.cfg.canvas_length),
        .kv_bytes_full = dg_kv_bytes_for(e->kv, e->n_context, rows),
    };
}

/* ---- tokens ---- */

static dgemma_status need_tokenizer(const dgemma_engine *e, dgemma_error *err)
{
    return e->loaded.tokenizer ? DGEMMA_OK
                               : dg_fail(err, DGEMMA_E_UNSUPPORTED,
                                         "%s has no tokenizer.json: only token ids are possible",
                                         dg_checkpoint_dir(e->loaded.checkpoint));
}

dgemma_status dgemma_tokenize(const dgemma_engine *e, const char *text, size_t len, bool markers,
                              int32_t *ids, size_t cap, size_t *n, dgemma_error *err)
{
    dgemma_status st = need_tokenizer(e, err);
    if (st)
        return st;
    dg_tokens tokens;
    dg_tokens_init(&tokens, DG_ENCODE_MAX_TEXT);
    st = dg_tokenizer_encode(e->loaded.tokenizer, text, len, markers ? DG_ENCODE_ADDED : 0, &tokens,
                             err);
    if (!st) {
        *n = tokens.n;
        size_t fit = tokens.n < cap ? tokens.n : cap;
        if (fit)
            memcpy(ids, tokens.ids, fit * sizeof *ids);
        if (fit < tokens.n)
            st = dg_fail(err, DGEMMA_E_LIMIT, "%zu tokens, room for %zu", tokens.n, cap);
    }
    dg_tokens_clear(&tokens);
    return st;
}

dgemma_status dgemma_detokenize(const dgemma_engine *e, const int32_t *ids, size_t n, char **text,
                                size_t *len, dgemma_error *err)
{
    dgemma_status st = need_tokenizer(e, err);
    if (st)
        return st;
    dg_buf out;
    dg_buf_init(&out, (size_t)1 << 30);
    st = dg_tokenizer_decode(e->loaded.tokenizer, ids, n, true, &out, err);
    if (!st && !dg_buf_append(&out, "", 0))
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (st) {
        dg_buf_clear(&out);
        return st;
    }
    *text = out.data;
    if (len)
        *len = out.len;
    return DGEMMA_OK;
}

/* ---- generation ---- */

dgemma_request_options dgemma_request_defaults(const dgemma_engine *e)
{
    const dg_generation_config *g = &e->loaded.generation;
    return (dgemma_request_options){
        .max_tokens = DEFAULT_MAX_TOKENS,
        .max_denoise_steps = g->max_steps,
        .t_min = g->t_min,
        .t_max = g->t_max,
        .entropy_bound = g->entropy_bound,
        .stability_threshold = g->stability,
        .confidence_threshold = g->confidence,
        .canvas_length = e->loaded.cfg.canvas_length,
    };
}

static dgemma_status check_options(const dgemma_engine *e, const dgemma_request_options *o,
                                   dgemma_error *err)
{
    int n_prompt = (o->chat_prompt != NULL) + (o->raw_prompt != NULL) + (o->tokens != NULL);
    if (n_prompt != 1)
        return dg_fail(err, DGEMMA_E_ARG, "%s",
                       n_prompt ? "more than one prompt was given" : "there is no prompt");
    if (o->max_tokens < 1)
        return dg_fail(err, DGEMMA_E_ARG, "max_tokens is %d: at least 1 is needed", o->max_tokens);
    if (o->max_denoise_steps < 1 || o->max_denoise_steps > 100000)
        return dg_fail(err, DGEMMA_E_ARG, "max_denoise_steps is %d: 1 to 100000 are possible",
                       o->max_denoise_steps);
    if (!(o->t_min > 0) || !(o->t_max >= o->t_min) || !isfinite(o->t_max))
        return dg_fail(err, DGEMMA_E_ARG,
                       "temperatures run from %g to %g: 0 < t_min <= t_max is needed",
                       (double)o->t_max, (double)o->t_min);
    if (!(o->entropy_bound >= 0))
        return dg_fail(err, DGEMMA_E_ARG, "entropy_bound is %g: at least 0 is needed",
                       (double)o->entropy_bound);
    if (o->stability_threshold < 0)
        return dg_fail(err, DGEMMA_E_ARG, "stability_threshold is %d: at least 0 is needed",
                       o->stability_threshold);
    if (!(o->confidence_threshold >= 0))
        return dg_fail(err, DGEMMA_E_ARG, "confidence_threshold is %g: at least 0 is needed",
                       (double)o->confidence_threshold);
    if (o->canvas_length < 1 || o->canvas_length > e->loaded.cfg.canvas_length)
        return dg_fail(err, DGEMMA_E_ARG, "canvas_length is %d: 1 to %d are possible",
                       o->canvas_length, e->loaded.cfg.canvas_length);
    return DGEMMA_OK;
}

static dgemma_status encode_prompt(const dgemma_engine *e, const dgemma_request_options *o,
                                   dg_tokens *out, dgemma_error *err)
{
    if (o->tokens) {
        for (size_t i = 0; i < o->n_tokens; i++)
            if (!dg_tokens_push(out, o->tokens[i]))
                return dg_fail(err, DGEMMA_E_LIMIT, "the prompt has more than %zu tokens",
                               out->max);
        return DGEMMA_OK;
    }
    dgemma_status st = need_tokenizer(e, err);
    if (st)
        return st;
    if (o->chat_prompt)
        return dg_chat_user_turn(e->loaded.tokenizer, o->chat_prompt, strlen(o->chat_prompt), out,
                                 err);
    /* the model was trained with exactly one <bos> */
    bool has_bos =
        strncmp(o->raw_prompt, "<bos>", 5) == 0 || dg_tokenizer_bos(e->loaded.tokenizer) < 0;
    unsigned flags = DG_ENCODE_ADDED | (has_bos ? 0u : (unsigned)DG_ENCODE_BOS);
    return dg_tokenizer_encode(e->loaded.tokenizer, o->raw_prompt, strlen(o->raw_prompt), flags,
                               out, err);
}

dgemma_status dgemma_generate(dgemma_engine *e, const dgemma_request_options *o,
                              dgemma_event_fn *on_event, void *user, dgemma_stats *stats,
                              dgemma_error *err)
{
    dgemma_stats local;
    stats = stats ? stats : &local;
    *stats = (dgemma_stats){0};
    dgemma_status st = check_options(e, o, err);
    if (st)
        return st;
    dg_tokens prompt;
    dg_tokens_init(&prompt, (size_t)e->loaded.cfg.n_context);
    st = encode_prompt(e, o, &prompt, err);
    if (!st)
        st = dg_engine_generate(
            e,
            &(dg_request_config){
                .prompt = prompt.ids,
                .n_prompt = (int)prompt.n,
                .diffusion = {o->max_denoise_steps, o->t_min, o->t_max, o->entropy_bound,
                              o->stability_threshold, o->confidence_threshold},
                .canvas_length = o->canvas_length,
                .max_tokens = o->max_tokens,
                .n_context = e->n_context,
                .draws = dg_draws_seeded(o->seed, e->loaded.cfg.n_vocab),
            },
            on_event, user, stats, err);
    dg_tokens_clear(&prompt);
    return st;
}
