/* The public functions: argument checks, and the way from public options to the engine's own. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "dgemma.h"
#include "engine/engine.h"
#include "engine/prompt.h"
#include "engine/request.h"
#include "engine/request_guide.h"
#include "engine/request_start.h"

/* Colder, and logits divided by it could overflow; the readers of a model's config say the same. */
#define LEAST_TEMPERATURE 1e-6f

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

static dgemma_status check_engine_options(const dgemma_engine_options *opt, dgemma_error *err)
{
    if (!opt || !opt->model_path)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    if (opt->n_threads < 0)
        return dg_fail(err, DGEMMA_E_ARG, "%d threads asked for", opt->n_threads);
    if (opt->context_length < 0)
        return dg_fail(err, DGEMMA_E_ARG, "a context of %d tokens asked for", opt->context_length);
    if (opt->max_running < 0 || opt->max_running > DG_MAX_RUNNING)
        return dg_fail(err, DGEMMA_E_ARG, "max_running is %d: 1 to %d are possible, or 0 for %d",
                       opt->max_running, DG_MAX_RUNNING, DG_DEFAULT_RUNNING);
    if (opt->queue_length < 0)
        return dg_fail(err, DGEMMA_E_ARG, "queue_length is %d: at least 1, or 0 for %d",
                       opt->queue_length, DG_DEFAULT_QUEUE);
    if ((unsigned)opt->kv_type > DGEMMA_KV_FP8)
        return dg_fail(err, DGEMMA_E_ARG, "unknown kv_type %d: bf16, f32, q8_0 and fp8 are 0 to 3",
                       (int)opt->kv_type);
    if ((unsigned)opt->image_attention > DGEMMA_IMAGES_CAUSAL)
        return dg_fail(err, DGEMMA_E_ARG, "unknown image_attention %d", (int)opt->image_attention);
    return dg_adapter_set_check(opt, err);
}

dgemma_status dgemma_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                                 dgemma_error *err)
{
    dgemma_status st = check_engine_options(opt, err);
    return st ? st : dg_engine_open(out, opt, err);
}

void dgemma_engine_close(dgemma_engine *engine)
{
    dg_engine_close(engine);
}

bool dgemma_engine_patch(dgemma_engine *e, const void *address)
{
    return dg_loaded_patch(&e->loaded, address);
}

dgemma_status dgemma_engine_check(const dgemma_engine *e, dgemma_error *err)
{
    dgemma_status st = dg_loaded_intact(&e->loaded, err);
    return st || !e->be->check ? st : e->be->check(e->be, err);
}

void dgemma_engine_info(const dgemma_engine *e, dgemma_model_info *info)
{
    dg_engine_describe(e, info);
}

size_t dgemma_adapter_count(const dgemma_engine *e)
{
    return (size_t)e->adapters.n;
}

void dgemma_adapter_describe(const dgemma_engine *e, size_t adapter, dgemma_adapter_info *info)
{
    dg_adapter_set_describe(&e->adapters, e->model, (int)adapter, info);
}

int dgemma_adapter_find(const dgemma_engine *e, const char *name)
{
    return dg_adapter_set_find(&e->adapters, name);
}

dgemma_status dgemma_model_estimate(dgemma_model_info *info, const dgemma_engine_options *opt,
                                    dgemma_error *err)
{
    dgemma_status st = check_engine_options(opt, err);
    return st ? st : dg_engine_estimate(info, opt, err);
}

void dgemma_engine_count(const dgemma_engine *e, dgemma_engine_counters *counters)
{
    dg_scheduler_count(e->scheduler, counters);
    counters->picture_bytes_used = dg_picture_memory_used(e->picture_memory);
    counters->picture_bytes_total = dg_picture_memory_total(e->picture_memory);
}

/* ---- tokens ---- */

dgemma_status dgemma_tokenize(const dgemma_engine *e, const char *text, size_t len, bool markers,
                              int32_t *ids, size_t cap, size_t *n, dgemma_error *err)
{
    dgemma_status st = dg_need_tokenizer(e, err);
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
    dgemma_status st = dg_need_tokenizer(e, err);
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

/* ---- options of a request ---- */

dgemma_request_options dgemma_request_defaults(const dgemma_engine *e)
{
    const dg_generation_config *g = &e->loaded.generation;
    return (dgemma_request_options){
        .thinking_budget = -1,
        .temperature = 1,
        .top_p = 1,
        .n_logprobs = -1,
        .max_tokens = DEFAULT_MAX_TOKENS,
        .max_denoise_steps = g->max_steps,
        .t_min = g->t_min,
        .t_max = g->t_max,
        .entropy_bound = g->entropy_bound,
        .stability_threshold = g->stability,
        .confidence_threshold = g->confidence,
        .canvas_length = e->loaded.cfg.canvas_length,
        .strength = 1,
    };
}

static dgemma_status check_diffusion(const dgemma_engine *e, const dgemma_request_options *o,
                                     dgemma_error *err)
{
    int canvas = e->loaded.cfg.canvas_length;
    if (o->max_denoise_steps < 1 || o->max_denoise_steps > 100000)
        return dg_fail(err, DGEMMA_E_ARG, "max_denoise_steps is %d: 1 to 100000 are possible",
                       o->max_denoise_steps);
    if (!(o->t_min >= LEAST_TEMPERATURE) || !(o->t_max >= o->t_min) || !isfinite(o->t_max))
        return dg_fail(err, DGEMMA_E_ARG,
                       "temperatures run from %g to %g: %g <= t_min <= t_max is needed",
                       (double)o->t_max, (double)o->t_min, (double)LEAST_TEMPERATURE);
    if (!(o->entropy_bound >= 0))
        return dg_fail(err, DGEMMA_E_ARG, "entropy_bound is %g: at least 0 is needed",
                       (double)o->entropy_bound);
    if (o->stability_threshold < 0)
        return dg_fail(err, DGEMMA_E_ARG, "stability_threshold is %d: at least 0 is needed",
                       o->stability_threshold);
    if (!(o->confidence_threshold >= 0))
        return dg_fail(err, DGEMMA_E_ARG, "confidence_threshold is %g: at least 0 is needed",
                       (double)o->confidence_threshold);
    if (o->settled_steps < 0)
        return dg_fail(err, DGEMMA_E_ARG, "settled_steps is %d: at least 1, or 0 for off",
                       o->settled_steps);
    if (o->canvas_length < 1 || o->canvas_length > canvas)
        return dg_fail(err, DGEMMA_E_ARG, "canvas_length is %d: 1 to %d are possible",
                       o->canvas_length, canvas);
    return DGEMMA_OK;
}

static dgemma_status check_choice(const dgemma_request_options *o, bool chat, dgemma_error *err)
{
    if ((unsigned)o->tool_choice > DGEMMA_TOOLS_NAMED)
        return dg_fail(err, DGEMMA_E_ARG, "unknown tool_choice %d", (int)o->tool_choice);
    if (!chat && (o->tool_choice != DGEMMA_TOOLS_AUTO || o->answer_prefix))
        return dg_fail(err, DGEMMA_E_ARG,
                       "tool_choice and answer_prefix go with a chat prompt or messages");
    if (o->tool_choice == DGEMMA_TOOLS_NAMED && !o->tool_name)
        return dg_fail(err, DGEMMA_E_ARG, "a call of a certain tool is required, without its name");
    return DGEMMA_OK;
}

static dgemma_status check_media(const dgemma_request_options *o, dgemma_error *err)
{
    for (size_t i = 0; i < o->n_media; i++) {
        const dgemma_media *m = &o->media[i];
        if (!m->path == !m->data)
            return dg_fail(err, DGEMMA_E_ARG, "medium %zu: give a file or bytes", i);
        if (m->max_soft_tokens < 0 || m->max_soft_tokens > DG_MAX_PICTURE_TOKENS)
            return dg_fail(err, DGEMMA_E_ARG,
                           "medium %zu: max_soft_tokens is %d: 1 to %d are possible", i,
                           m->max_soft_tokens, DG_MAX_PICTURE_TOKENS);
    }
    if (o->image_tokens < 0 || o->image_tokens > DG_MAX_PICTURE_TOKENS)
        return dg_fail(err, DGEMMA_E_ARG, "image_tokens is %d: 1 to %d are possible",
                       o->image_tokens, DG_MAX_PICTURE_TOKENS);
    return DGEMMA_OK;
}

/* The model's own ends go with a constraint; another token would cut its text anywhere. */
static dgemma_status check_stop_tokens(const dg_config *cfg, const dgemma_request_options *o,
                                       dgemma_error *err)
{
    if (o->n_stop_tokens > DGEMMA_MAX_STOP_TOKENS)
        return dg_fail(err, DGEMMA_E_ARG, "%zu stop tokens: at most %d are possible",
                       o->n_stop_tokens, DGEMMA_MAX_STOP_TOKENS);
    for (size_t i = 0; i < o->n_stop_tokens; i++) {
        bool own = false;
        for (int k = 0; k < cfg->n_stop; k++)
            own |= cfg->stop_token[k] == o->stop_tokens[i];
        if (o->stop_tokens[i] < 0 || o->stop_tokens[i] >= cfg->n_vocab)
            return dg_fail(err, DGEMMA_E_ARG, "stop token %d is not in the vocabulary of %d",
                           (int)o->stop_tokens[i], cfg->n_vocab);
        if (!own && o->constraint)
            return dg_fail(
                err, DGEMMA_E_ARG,
                "stop token %d cannot go with a constraint: it could end a text that is not "
                "whole",
                (int)o->stop_tokens[i]);
    }
    return DGEMMA_OK;
}

static dgemma_status check_options(const dgemma_engine *e, const dgemma_request_options *o,
                                   dgemma_error *err)
{
    int n = (o->chat_prompt != NULL) + (o->messages != NULL) + (o->raw_prompt != NULL) +
            (o->tokens != NULL) + (o->prompt != NULL);
    /* A prompt was checked when made; of a gap without one we make it. */
    bool chat = o->chat_prompt || o->messages || o->prompt || (!n && o->suffix);
    if (n != 1 && (n || !o->suffix))
        return dg_fail(err, DGEMMA_E_ARG, "%s",
                       n ? "more than one prompt was given" : "there is no prompt");
    if (!chat && (o->system || o->tools || o->thinking))
        return dg_fail(err, DGEMMA_E_ARG,
                       "system, tools and thinking go with a chat prompt or messages");
    if (o->max_tokens < 1)
        return dg_fail(err, DGEMMA_E_ARG, "max_tokens is %d: at least 1 is needed", o->max_tokens);
    if (o->thinking_budget < -1)
        return dg_fail(err, DGEMMA_E_ARG, "thinking_budget is %d: at least 0, or -1 for none",
                       o->thinking_budget);
    if (o->cache_salt && strlen(o->cache_salt) > DGEMMA_MAX_CACHE_SALT)
        return dg_fail(err, DGEMMA_E_ARG, "cache_salt has %zu bytes: at most %d are possible",
                       strlen(o->cache_salt), DGEMMA_MAX_CACHE_SALT);
    if (o->constraint && !o->suffix && /* before a gap there is always a prefix */
        (o->answer_prefix || o->tool_choice >= DGEMMA_TOOLS_REQUIRED))
        return dg_fail(
            err, DGEMMA_E_ARG,
            "a constraint goes with no answer_prefix and no tool_choice that opens a call");
    if (o->read && o->constraint)
        return dg_fail(err, DGEMMA_E_ARG, "a read goes with no constraint");
    if (o->n_stop && !e->loaded.tokenizer)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "stop strings need a tokenizer, which the model lacks");
    dgemma_status st = check_stop_tokens(&e->loaded.cfg, o, err);
    if (!st)
        st = dg_adapter_uses_check(&e->adapters, o, err);
    if (!st)
        st = check_media(o, err);
    if (!st)
        st = check_choice(o, chat, err);
    if (!st)
        st = dg_sampling_check(o, e->loaded.cfg.n_vocab, err);
    if (!st)
        st = dg_request_start_check(e, o, err);
    return st ? st : check_diffusion(e, o, err);
}

/* ---- requests ---- */

static dgemma_status copy_stops(dgemma_request *r, const dgemma_request_options *o,
                                dgemma_error *err)
{
    dg_stop_strings *probe; /* says what is wrong with the strings */
    dgemma_status st = dg_stop_strings_create(&probe, o->stop, o->n_stop, err);
    if (st)
        return st;
    dg_stop_strings_free(probe);
    r->answer.stop = dg_calloc(o->n_stop, sizeof *r->answer.stop);
    bool ok = r->answer.stop != NULL;
    for (size_t i = 0; ok && i < o->n_stop; i++)
        ok = (r->answer.stop[r->answer.n_stop++] = dg_strdup(o->stop[i])) != NULL;
    return ok ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

/* Fills the request, which has its prompt, from the options. */
static dgemma_status fill_request(dgemma_request *r, const dgemma_engine *e,
                                  const dgemma_request_options *o, dgemma_error *err)
{
    const dg_config *model = &e->loaded.cfg;
    const dgemma_prompt *prompt = r->prompt;
    const dg_tokens *tokens = &prompt->tokens;
    bool both_ways = model->bidirectional_images && e->image_attention != DGEMMA_IMAGES_CAUSAL;
    r->cfg = (dg_block_loop_config){
        .prompt = tokens->ids,
        .n_prompt = (int)tokens->n,
        .diffusion = {o->max_denoise_steps, o->t_min, o->t_max, o->entropy_bound,
                      o->stability_threshold, o->confidence_threshold, o->settled_steps},
        .canvas_length = o->canvas_length,
        .max_tokens = o->max_tokens,
        .n_context = e->n_context,
        .draws = dg_draws_seeded(o->seed, model->n_vocab),
        .no_self_conditioning = e->no_self_conditioning,
        .vocabulary = dg_sampling_options(&r->sampling),
        .logprobs = o->n_logprobs >= 0,
        .n_top = dg_max(0, o->n_logprobs),
        .block = both_ways ? prompt->pictures.block : NULL,
        .feature = prompt->pictures.feature,
        .think_open = e->think_open,
        .think_close = e->think_close,
        .think_newline = e->think_newline,
        .think_head = e->think_head.ids,
        .n_think_head = (int)e->think_head.n,
        .in_thought = prompt->in_thought,
        .think_budget = o->thinking_budget,
    };
    r->answer = (dg_answer_config){
        .tokenizer = e->loaded.tokenizer,
        .drafts = o->drafts,
        .in_thought = prompt->in_thought,
        .in_text = prompt->in_text,
        .single_call = o->single_tool_call,
        .opening = prompt->n_opening ? tokens->ids + tokens->n - prompt->n_opening : NULL,
        .n_opening = prompt->n_opening,
        .on_step = o->on_step,
        .step_user = o->step_user,
    };
    r->cfg.adapter = r->adapter;
    r->cfg.n_adapter = dg_adapter_uses(r->adapter, &e->adapters, o);
    r->prefix_salt = dg_adapter_salt(e->model, r->adapter, r->cfg.n_adapter, prompt->salt);
    if (!r->prefix_salt)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < o->n_stop_tokens; i++)
        r->cfg.stop_token[r->cfg.n_stop_token++] = o->stop_tokens[i];
    dgemma_status st = dg_block_loop_check(&r->cfg, model, err);
    int longest = dg_block_loop_longest_picture(&r->cfg);
    if (!st && longest > dg_forward_max_row(e->forward))
        st = dg_fail(err, DGEMMA_E_LIMIT, "a picture of %d tokens: at most %d are possible",
                     longest, dg_forward_max_row(e->forward));
    return st ? st : copy_stops(r, o, err);
}

/* The request reads one canvas, at temperature 1, to its last step. */
static dgemma_status set_read(dgemma_request *r, const dgemma_engine *e,
                              const dgemma_request_options *o, dgemma_error *err)
{
    if (!e->be->answers)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "reads do not work on %s yet", e->be->name);
    dgemma_status st = dg_read_create(&r->read, o->read, &e->loaded.cfg, err);
    if (st)
        return st;
    dg_block_loop_config *cfg = &r->cfg;
    cfg->read = r->read;
    cfg->canvas_length = r->read->n;
    cfg->max_tokens = 1;
    cfg->diffusion.t_min = cfg->diffusion.t_max = 1;
    cfg->diffusion.confidence = 0;
    cfg->diffusion.settled_steps = 0;
    return dg_block_loop_check(cfg, &e->loaded.cfg, err);
}

/* The prompt of the options: made before, or now. The caller's (dg_prompt_release). */
static dgemma_status prompt_of(dgemma_prompt **out, const dgemma_engine *e,
                               const dgemma_request_options *o, dgemma_error *err)
{
    if (!o->prompt)
        return dg_prompt_build(out, e, o, e->n_context, err);
    if (o->prompt->engine != e)
        return dg_fail(err, DGEMMA_E_ARG, "the prompt was made for another engine");
    *out = dg_prompt_hold(o->prompt);
    return DGEMMA_OK;
}

dgemma_status dgemma_request_submit(dgemma_request **out, dgemma_engine *e,
                                    const dgemma_request_options *o, dgemma_error *err)
{
    dgemma_status st = check_options(e, o, err);
    if (st)
        return st;
    dgemma_request *r = dg_calloc(1, sizeof *r);
    if (r)
        atomic_init(&r->n_holder, 1);
    st = r ? dg_stream_create(&r->stream, err) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        st = prompt_of(&r->prompt, e, o, err);
    if (!st)
        st = dg_sampling_init(&r->sampling, o, err);
    if (!st)
        st = fill_request(r, e, o, err);
    if (!st)
        st = dg_request_start(r, e, o, err);
    if (!st && o->constraint)
        st = dg_request_constrain(r, e, o, err);
    if (!st && o->read)
        st = set_read(r, e, o, err);
    if (!st)
        st = dg_scheduler_submit(e->scheduler, r, err);
    if (st)
        dg_request_release(r);
    else
        *out = r;
    return st;
}

/* ---- prompts ---- */

dgemma_status dgemma_prompt_create(dgemma_prompt **out, dgemma_engine *e,
                                   const dgemma_request_options *o, dgemma_error *err)
{
    dgemma_status st = check_options(e, o, err);
    return st ? st : prompt_of(out, e, o, err);
}

dgemma_status dgemma_prompt_extend(dgemma_prompt **out, dgemma_engine *e, dgemma_prompt *p,
                                   const int32_t *tokens, size_t n, dgemma_error *err)
{
    if (p->engine != e)
        return dg_fail(err, DGEMMA_E_ARG, "the prompt was made for another engine");
    if (n > (size_t)e->n_context || p->tokens.n + n >= (size_t)e->n_context)
        return dg_fail_context(err, (size_t)e->n_context, p->tokens.n + n, true);
    return dg_prompt_extend(out, p, tokens, n, err);
}

size_t dgemma_prompt_length(const dgemma_prompt *p)
{
    return p->tokens.n;
}

void dgemma_prompt_free(dgemma_prompt *p)
{
    dg_prompt_release(p);
}

dgemma_status dgemma_prompt_count(dgemma_engine *e, const dgemma_request_options *o, size_t *n,
                                  dgemma_error *err)
{
    dgemma_prompt *prompt = NULL;
    dgemma_status st = check_options(e, o, err);
    if (!st)
        st = o->prompt ? prompt_of(&prompt, e, o, err)
                       : dg_prompt_build(&prompt, e, o, e->loaded.cfg.n_context, err);
    *n = st ? 0 : prompt->tokens.n;
    dg_prompt_release(prompt);
    return st;
}

/* ---- their events ---- */

bool dgemma_request_wait(dgemma_request *r, dgemma_event *event, double seconds)
{
    return dg_stream_wait(r->stream, event, seconds);
}

void dgemma_request_notify(dgemma_request *r, dgemma_notify_fn *fn, void *user)
{
    dg_stream_notify(r->stream, fn, user);
}

void dgemma_request_cancel(dgemma_request *r)
{
    dg_stream_cancel(r->stream);
}

void dgemma_request_free(dgemma_request *r)
{
    if (!r)
        return;
    dg_stream_hang_up(r->stream);
    dg_request_release(r);
}

dgemma_status dgemma_generate(dgemma_engine *e, const dgemma_request_options *o,
                              dgemma_event_fn *on_event, void *user, dgemma_stats *stats,
                              dgemma_error *err)
{
    dgemma_request *r;
    if (stats)
        *stats = (dgemma_stats){0};
    dgemma_status st = dgemma_request_submit(&r, e, o, err);
    if (st)
        return st;
    for (dgemma_event event; dgemma_request_wait(r, &event, -1);) {
        if (on_event && !on_event(user, &event))
            dgemma_request_cancel(r);
        if (event.kind != DGEMMA_EVENT_END)
            continue;
        if (stats)
            *stats = event.stats;
        if (event.status)
            st = dg_fail(err, event.status, "%s", event.text);
    }
    dgemma_request_free(r);
    return st;
}
