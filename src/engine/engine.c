#include "engine/engine.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "engine/block_loop.h"
#include "engine/device.h"
#include "engine/saved_prefix.h"
#include "format/checkpoint_mark.h"

/* ---- opening ---- */

dgemma_status dg_engine_backend(dg_backend **out, int *n_thread, const dgemma_engine_options *opt,
                                dgemma_error *err)
{
    unsigned flags = dg_cpu_flags(), wanted = flags;
    if (opt->cpu && !dg_cpu_flags_parse(&wanted, opt->cpu))
        return dg_fail(
            err, DGEMMA_E_ARG,
            "instruction set \"%s\": ref, neon, i8mm, bf16, avx2, vnni and amx are known",
            opt->cpu);
    if (wanted & ~flags)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "this processor does not have %s", opt->cpu);
    bool exact = opt->profile && strcmp(opt->profile, "float") == 0;
    if (opt->profile && !exact && strcmp(opt->profile, "integer") != 0)
        return dg_fail(err, DGEMMA_E_ARG, "profile \"%s\": \"integer\" and \"float\" are known",
                       opt->profile);
    *n_thread = opt->n_threads ? opt->n_threads : dg_cpu_count();
    dg_device_options device = {.name = opt->device,
                                .cpu = {*n_thread, wanted, exact},
                                .gpu_bytes = opt->gpu_bytes,
                                .weights = opt->weights};
    return dg_device_open(out, &device, err);
}

/* Which revision of the template to speak. */
static dgemma_status choose_template(dgemma_engine *e, const char *wanted, dgemma_error *err)
{
    dg_chat_revision found =
        e->loaded.chat_template ? dg_chat_revision_of(e->loaded.chat_template) : DG_CHAT_REVISION_A;
    e->foreign_template = found == DG_CHAT_UNKNOWN;
    e->revision = e->foreign_template ? DG_CHAT_REVISION_A : found;
    if (!wanted)
        return DGEMMA_OK;
    if (strcmp(wanted, "a") != 0 && strcmp(wanted, "b") != 0)
        return dg_fail(err, DGEMMA_E_ARG, "chat template \"%s\": \"a\" and \"b\" are known",
                       wanted);
    e->revision = wanted[0] == 'a' ? DG_CHAT_REVISION_A : DG_CHAT_REVISION_B;
    return DGEMMA_OK;
}

static bool progress(const dgemma_engine_options *opt, double fraction)
{
    return !opt->on_progress || opt->on_progress(opt->progress_user, fraction);
}

/* How this model's thoughts are written: <|channel>thought, a line's end, the thought, a line's
 * end, <channel|>. */
static dgemma_status learn_thinking(dgemma_engine *e, dgemma_error *err)
{
    static const char head[] = "thought\n";
    const dg_tokenizer *t = e->loaded.tokenizer;
    e->think_open = e->think_close = e->think_newline = -1;
    dg_tokens_init(&e->think_head, DG_ENCODE_MAX_TEXT);
    if (!t)
        return DGEMMA_OK;
    e->think_open = dg_tokenizer_added_id(t, "<|channel>");
    e->think_close = dg_tokenizer_added_id(t, "<channel|>");
    dg_tokens newline;
    dg_tokens_init(&newline, DG_ENCODE_MAX_TEXT);
    dgemma_status st = dg_tokenizer_encode(t, "\n", 1, 0, &newline, err);
    if (!st && newline.n == 1)
        e->think_newline = newline.ids[0];
    dg_tokens_clear(&newline);
    return st ? st : dg_tokenizer_encode(t, head, sizeof head - 1, 0, &e->think_head, err);
}

/* All that is known without weights: files, config, tokenizer, backend, the cache's layout. */
static dgemma_status open_headers(dgemma_engine *e, const dgemma_engine_options *opt,
                                  dgemma_error *err)
{
    dgemma_status st = progress(opt, 0) ? dg_load(&e->loaded, opt->model_path, err)
                                        : dg_fail(err, DGEMMA_E_CANCELLED, "loading was given up");
    if (!st)
        st = dg_load_tower(&e->loaded, opt->mmproj, err);
    if (!st)
        st = choose_template(e, opt->chat_template, err);
    if (!st && !progress(opt, 0.5))
        st = dg_fail(err, DGEMMA_E_CANCELLED, "loading was given up");
    if (!st)
        st = dg_engine_backend(&e->be, &e->n_thread, opt, err);
    if (st)
        return st;
    const dg_config *cfg = &e->loaded.cfg;
    e->n_context =
        opt->context_length ? dg_min(opt->context_length, cfg->n_context) : cfg->n_context;
    e->image_attention = opt->image_attention;
    e->max_running = opt->max_running ? opt->max_running : DG_DEFAULT_RUNNING;
    st = learn_thinking(e, err);
    if (st)
        return st;
    return dg_kv_cache_create(&e->kv, cfg, e->be, dg_device_kv_type(opt->kv_type), 0, err);
}

/* The tower, of the checkpoint itself or from a file of its own. */
static dgemma_status open_vision(dgemma_engine *e, dgemma_error *err)
{
    const dg_config *cfg = &e->loaded.cfg;
    const dg_checkpoint *from = e->loaded.mmproj ? e->loaded.mmproj : e->loaded.checkpoint;
    if (!e->be->vision_plan) {
        dg_free(e->loaded.tower_ignored);
        e->loaded.tower_ignored =
            cfg->vision.present ? dg_strdup("pictures are not read on this device yet, only on cpu")
                                : NULL;
        return DGEMMA_OK;
    }
    dgemma_status st = dg_vision_load(&e->vision, cfg, from, e->be, err);
    /* where keys and values are about to take what is left of the memory, pictures of the usual
     * size have their share first */
    if (!st && e->vision && e->be->room)
        st = dg_vision_reserve(e->vision,
                               cfg->vision.max_soft * cfg->vision.pool * cfg->vision.pool, err);
    if (!st && e->vision)
        st = dg_picture_cache_create(&e->pictures, e->vision, e->be, cfg->n_embd,
                                     DG_PICTURE_CACHE_BYTES, err);
    return st;
}

static dgemma_status open_model(dgemma_engine *e, const dgemma_engine_options *opt,
                                dgemma_error *err)
{
    const dg_config *cfg = &e->loaded.cfg;
    e->mark = dg_saved_mark(dg_checkpoint_mark(e->loaded.checkpoint), cfg);
    dgemma_status st = dg_model_load(&e->model, cfg, e->loaded.checkpoint, e->be, err);
    if (!st)
        st = dg_adapter_set_open(&e->adapters, e->model, opt, err);
    if (!st)
        st = dg_forward_create(&e->forward, e->model, e->kv,
                               dg_scheduler_rows(cfg, e->be, e->max_running),
                               e->max_running + DG_MAX_READS, err);
    if (!st)
        st = open_vision(e, err);
    if (!st && !progress(opt, 1))
        st = dg_fail(err, DGEMMA_E_CANCELLED, "loading was given up");
    return st;
}

/* Memory for keys and values; where nobody says how much, on a device with memory of its own as
 * much as is left, but for what graphs and buffers of passes may come to need. `to_come`: what will
 * be taken of it before. */
static size_t kv_bytes_for(const dgemma_engine *e, const dgemma_engine_options *opt, size_t to_come)
{
    static const size_t reserve = (size_t)512 << 20;
    if (opt->kv_bytes)
        return opt->kv_bytes;
    size_t wanted =
        dg_scheduler_kv_bytes(&e->loaded.cfg, e->be, e->kv, e->n_context, e->max_running);
    if (!e->be->room)
        return wanted;
    size_t there = e->be->room(e->be), room = there > to_come ? there - to_come : 0,
           left = room > 2 * reserve ? room - reserve : room / 2;
    return opt->gpu_bytes || left < wanted ? left : wanted;
}

static dgemma_status open_scheduler(dgemma_engine *e, const dgemma_engine_options *opt,
                                    dgemma_error *err)
{
    size_t picture_bytes = opt->picture_bytes ? opt->picture_bytes : DG_PICTURE_BYTES;
    dgemma_status st = dg_picture_memory_create(&e->picture_memory, picture_bytes, err);
    if (st)
        return st;
    e->kv_bytes = kv_bytes_for(e, opt, 0);
    dg_scheduler_config cfg = {
        .loaded = &e->loaded,
        .model = e->model,
        .kv = e->kv,
        .forward = e->forward,
        .pictures = e->pictures,
        .feature_bytes = picture_bytes,
        .images =
            e->image_attention == DGEMMA_IMAGES_IN_WINDOW ? DG_IMAGES_IN_WINDOW : DG_IMAGES_WHOLE,
        .max_running = e->max_running,
        .max_reads = DG_MAX_READS,
        .queue_length = opt->queue_length ? opt->queue_length : DG_DEFAULT_QUEUE,
        .kv_bytes = e->kv_bytes,
        .prefix_cache = !opt->no_prefix_cache,
        .turn_token =
            e->loaded.tokenizer ? dg_tokenizer_added_id(e->loaded.tokenizer, "<|turn>") : -1,
    };
    return dg_scheduler_create(&e->scheduler, &cfg, err);
}

static void close_parts(dgemma_engine *e)
{
    dg_scheduler_free(e->scheduler);
    dg_picture_cache_free(e->pictures);
    dg_picture_memory_release(e->picture_memory);
    dg_vision_free(e->vision);
    dg_forward_free(e->forward);
    dg_kv_cache_free(e->kv);
    dg_adapter_set_clear(&e->adapters);
    dg_model_free(e->model);
    if (e->be)
        e->be->close(e->be);
    dg_tokens_clear(&e->think_head);
    dg_token_trie_free(e->trie);
    pthread_mutex_destroy(&e->trie_lock);
    dg_loaded_clear(&e->loaded);
}

static size_t stored_bytes(const dg_checkpoint *ck)
{
    size_t bytes = 0;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++)
        bytes += dg_checkpoint_at(ck, i)->bytes;
    return bytes;
}

void dg_engine_describe(const dgemma_engine *e, dgemma_model_info *info)
{
    const dg_config *cfg = &e->loaded.cfg;
    size_t weights = stored_bytes(e->loaded.checkpoint);
    if (e->loaded.mmproj)
        weights += stored_bytes(e->loaded.mmproj);
    int rows = dg_scheduler_rows(cfg, e->be, e->max_running);
    *info = (dgemma_model_info){
        .n_vocab = cfg->n_vocab,
        .n_layer = cfg->n_layer,
        .n_embd = cfg->n_embd,
        .n_expert = cfg->n_expert,
        .n_expert_used = cfg->n_expert_used,
        .context_length = e->n_context,
        .canvas_length = cfg->canvas_length,
        .format = dg_checkpoint_gguf(e->loaded.checkpoint) ? "gguf" : "safetensors",
        .has_tokenizer = e->loaded.tokenizer != NULL,
        .has_vision = cfg->vision.present,
        .vision_ignored = e->loaded.tower_ignored,
        .has_chat_template = e->loaded.tokenizer && dg_chat_supported(e->loaded.tokenizer),
        .chat_template = e->revision == DG_CHAT_REVISION_A ? "a" : "b",
        .foreign_template = e->foreign_template,
        .backend = e->be->name,
        .gpu_address = e->be->address,
        .numerics = dg_device_numerics(e->be, e->loaded.checkpoint, dg_kv_config_of(e->kv)),
        .n_threads = e->n_thread,
        .weight_bytes = weights,
        .work_bytes = dg_forward_bytes(cfg, e->be, e->kv, rows, e->max_running + DG_MAX_READS),
        .request_bytes = dg_block_loop_bytes(cfg, cfg->canvas_length),
        .kv_bytes_full = dg_scheduler_kv_bytes(cfg, e->be, e->kv, e->n_context, 1),
        .kv_bytes = e->kv_bytes,
    };
}

dgemma_status dg_engine_estimate(dgemma_model_info *info, const dgemma_engine_options *opt,
                                 dgemma_error *err)
{
    dgemma_engine e = {0};
    dgemma_status st = open_headers(&e, opt, err);
    if (!st) {
        dg_engine_describe(&e, info);
        info->kv_bytes = kv_bytes_for(&e, opt, info->weight_bytes + info->work_bytes);
    }
    info->vision_ignored = info->gpu_address = NULL; /* they go with the parts */
    close_parts(&e);
    return st;
}

dgemma_status dg_engine_trie(dgemma_engine *e, const dg_token_trie **out, dgemma_error *err)
{
    if (!e->loaded.tokenizer)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "constraints need a tokenizer, which the model "
                       "lacks");
    if (!e->be->answers)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "constraints do not work on %s yet", e->be->name);
    pthread_mutex_lock(&e->trie_lock);
    dgemma_status st = DGEMMA_OK;
    if (!e->trie)
        st =
            dg_token_trie_create(&e->trie, e->loaded.tokenizer, (size_t)e->loaded.cfg.n_vocab, err);
    *out = e->trie;
    pthread_mutex_unlock(&e->trie_lock);
    return st;
}

/* ---- life cycle ---- */

dgemma_status dg_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                             dgemma_error *err)
{
    dgemma_engine *e = dg_calloc(1, sizeof *e);
    if (!e)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    pthread_mutex_init(&e->trie_lock, NULL);
    dgemma_status st = open_headers(e, opt, err);
    if (!st)
        st = open_model(e, opt, err);
    if (!st)
        st = open_scheduler(e, opt, err);
    if (st) {
        dg_engine_close(e);
        return st;
    }
    *out = e;
    return DGEMMA_OK;
}

void dg_engine_close(dgemma_engine *e)
{
    if (!e)
        return;
    close_parts(e);
    dg_free(e);
}
