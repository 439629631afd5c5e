/* The public functions that save prefixes and restore them: what takes long and needs no engine is
 * done by the caller's thread, the rest by the engine's. */
#include "base/alloc.h"
#include "base/error.h"
#include "engine/adapter_set.h"
#include "engine/engine.h"
#include "engine/saved_prefix.h"

typedef struct job {
    dgemma_engine *engine;
    dg_saved_maker maker;
    const char *path;
    char *salt; /* as prompts have it that no adapter changed */
    int which;
    dg_saved_file file; /* that is restored */
    dgemma_saved_prefix saved;
    dgemma_status status;
    dgemma_error err;
} job;

static job job_of(dgemma_engine *e, const char *path, const char *salt)
{
    dgemma_model_info info;
    dg_engine_describe(e, &info);
    return (job){.engine = e,
                 .maker = {.model = e->mark,
                           .numerics = info.numerics,
                           .n_vocab = info.n_vocab,
                           .n_context = info.context_length},
                 .path = path,
                 .salt = dg_adapter_salt(e->model, NULL, 0, salt)};
}

static dgemma_status finish(const job *j, dgemma_saved_prefix *saved, dgemma_error *err)
{
    dg_free(j->salt);
    if (j->status && err)
        *err = j->err;
    if (!j->status && saved)
        *saved = j->saved;
    return j->status;
}

static void save(void *arg, dg_prefix_cache *prefix)
{
    job *j = arg;
    j->status =
        prefix ? dg_saved_write(prefix, &j->maker, j->salt, j->which, j->path, &j->saved, &j->err)
               : dg_fail(&j->err, DGEMMA_E_ARG, "the engine keeps no prefixes");
}

dgemma_status dgemma_prefix_save(dgemma_engine *e, const char *path, int which,
                                 const char *cache_salt, dgemma_saved_prefix *saved,
                                 dgemma_error *err)
{
    if (!e || !path || !*path || which < 0)
        return dg_fail(err, DGEMMA_E_ARG, "no engine, no file or no conversation was named");
    job j = job_of(e, path, cache_salt);
    j.which = which;
    j.status = j.salt ? DGEMMA_OK : dg_fail(&j.err, DGEMMA_E_NOMEM, "out of memory");
    if (!j.status)
        dg_scheduler_call(e->scheduler, save, &j);
    return finish(&j, saved, err);
}

static void restore(void *arg, dg_prefix_cache *prefix)
{
    job *j = arg;
    j->status = prefix ? dg_saved_restore(&j->file, prefix, j->salt, &j->err)
                       : dg_fail(&j->err, DGEMMA_E_ARG, "the engine keeps no prefixes");
}

dgemma_status dgemma_prefix_restore(dgemma_engine *e, const char *path, const char *cache_salt,
                                    dgemma_saved_prefix *saved, dgemma_error *err)
{
    if (!e || !path || !*path)
        return dg_fail(err, DGEMMA_E_ARG, "no engine or no file was named");
    job j = job_of(e, path, cache_salt);
    j.status = j.salt ? dg_saved_open(&j.file, path, &j.maker, e->kv, &j.err)
                      : dg_fail(&j.err, DGEMMA_E_NOMEM, "out of memory");
    if (!j.status) {
        j.saved = (dgemma_saved_prefix){j.file.n_token, j.file.bytes};
        dg_scheduler_call(e->scheduler, restore, &j);
    }
    dg_saved_close(&j.file);
    return finish(&j, saved, err);
}
