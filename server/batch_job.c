#include "batch_job.h"
#include <string.h>
#include "base/alloc.h"

static bool start_deciding(dg_batch_job *j, const dg_batch_setup *cfg, const dg_batch_line *line,
                           dg_http_error *e)
{
    const dg_deciding_setup setup = {
        .engine = cfg->engine,
        .model = cfg->model_name,
        .cache_salt = cfg->cache_salt,
        .temperature = cfg->decision_temperature,
        .max_images = cfg->limits.max_images,
        .wire = line->route->wire,
        .to = &j->x,
        .headers = j->timing,
        .timing = j->timing_text,
        .notify = cfg->notify,
        .notify_user = cfg->notify_user,
    };
    j->n_answer = 1;
    return dg_deciding_start(&j->deciding, &setup, json_incref(line->body), e);
}

static bool start_generation(dg_batch_job *j, const dg_batch_setup *cfg, const dg_batch_line *line,
                             dg_http_error *e)
{
    const dg_generation_setup setup = {
        .engine = cfg->engine,
        .metrics = cfg->metrics,
        .model = cfg->model_name,
        .dialect = line->route->dialect,
        .to = &j->x,
        .notify = cfg->notify,
        .notify_user = cfg->notify_user,
    };
    dg_chat chat;
    if (!line->route->read(&chat, json_incref(line->body), &cfg->limits, line->seed, e))
        return false;
    if (chat.stream) {
        dg_chat_clear(&chat);
        return dg_refuse(e, 400, "unsupported", "stream", "stream: there are none in a batch");
    }
    chat.options.cache_salt = cfg->cache_salt;
    j->n_answer = (size_t)chat.n_choice * (chat.n_prompt ? chat.n_prompt : 1);
    return dg_generation_start(&j->generation, &setup, &chat, e);
}

/* What the line asks, of the model that it asks. */
static bool ask(dg_batch_job *j, const dg_batch_setup *cfg, const dg_batch_line *line)
{
    dg_batch_setup own = *cfg;
    const dg_model *m = j->hold.model;
    if (m) {
        own.engine = m->engine;
        own.metrics = m->metrics;
        own.model_name = m->name;
        own.limits = m->limits;
    }
    return line->route->wire ? start_deciding(j, &own, line, &j->why)
                             : start_generation(j, &own, line, &j->why);
}

dg_batch_job *dg_batch_job_start(const dg_batch_setup *cfg, dg_batch_line *line, uint64_t number,
                                 dg_hold *hold, const dg_http_error *why)
{
    dg_batch_job *j = dg_calloc(1, sizeof *j);
    if (!j)
        return NULL;
    bool ok = dg_exchange_init(&j->x, NULL, NULL);
    j->custom_id = dg_strdup(line->custom_id);
    j->number = number;
    memcpy(j->mark, line->mark, sizeof j->mark);
    memcpy(j->x.id, line->mark, sizeof line->mark); /* names in the answer are the same each time */
    if (!ok || !j->custom_id) {
        dg_batch_job_free(j);
        return NULL;
    }
    if (line->route->dialect && line->route->dialect->error)
        j->x.error_form = line->route->dialect->error;
    j->hold = *hold;
    *hold = (dg_hold){0};
    if (why)
        j->why = *why;
    j->refused = why || !ask(j, cfg, line);
    if (j->refused)
        dg_exchange_refuse(&j->x, &j->why);
    return j;
}

bool dg_batch_job_done(dg_batch_job *j)
{
    if (j->generation) {
        if (!dg_generation_advance(j->generation))
            return false;
        dgemma_stats s;
        dg_generation_end(j->generation);
        dg_generation_stats(j->generation, &s);
        j->n_token = (size_t)s.n_output;
        dg_generation_free(j->generation);
        j->generation = NULL;
    }
    if (j->deciding) {
        if (!dg_deciding_done(j->deciding))
            return false;
        dg_deciding_answer(j->deciding);
        dg_deciding_free(j->deciding);
        j->deciding = NULL;
    }
    return true;
}

bool dg_batch_job_can_wait(const dg_batch_job *j)
{
    return j->refused && j->why.retry_after;
}

void dg_batch_job_cancel(dg_batch_job *j)
{
    if (j->generation)
        dg_generation_cancel(j->generation, NULL);
    dg_deciding_free(j->deciding);
    j->deciding = NULL;
}

void dg_batch_job_free(dg_batch_job *j)
{
    if (!j)
        return;
    dg_hold_drop(&j->hold);
    dg_exchange_clear(&j->x);
    dg_free(j->custom_id);
    dg_free(j);
}
