#include "passage.h"
#include <ctype.h>
#include "base/error.h"

bool cli_gap_find(const char *text, size_t len, long n, size_t *at, long *seen)
{
    for (; *seen < n; ++*seen) {
        if (*at == len)
            return false;
        do
            ++*at;
        while (*at < len && ((unsigned char)text[*at] & 0xC0) == 0x80);
    }
    return *seen == n;
}

void cli_gap_trim(const char *text, size_t *start, size_t *end)
{
    while (*start < *end && isspace((unsigned char)text[*start]))
        ++*start;
    while (*end > *start && isspace((unsigned char)text[*end - 1]))
        --*end;
}

dgemma_engine *cli_gap_open(cli_request_args *a)
{
    dgemma_error err = {0};
    dgemma_engine *engine = NULL;
    dgemma_model_info info;
    cli_progress progress;
    cli_progress_attach(&progress, &a->engine);
    dgemma_status st = dgemma_engine_open(&engine, &a->engine, &err);
    cli_progress_end(&progress);
    if (st) {
        cli_fail(&err);
        return NULL;
    }
    cli_guard_engine(engine);
    dgemma_engine_info(engine, &info);
    cli_warn_of_model(&a->engine, &info);
    return engine;
}

typedef struct filling {
    dg_buf *out;
    bool no_memory;
} filling;

static bool take(void *user, const dgemma_event *e)
{
    filling *f = user;
    if (e->kind == DGEMMA_EVENT_TEXT && !dg_buf_append(f->out, e->text, e->text_len))
        f->no_memory = true;
    return !f->no_memory;
}

dgemma_status cli_gap_fill(dgemma_engine *engine, const dgemma_request_options *o, dg_buf *out,
                           dgemma_stats *stats, dgemma_error *err)
{
    filling f = {.out = out};
    dgemma_status st = dgemma_generate(engine, o, take, &f, stats, err);
    return st || !f.no_memory ? st : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

void cli_gap_report(FILE *out, const dgemma_stats *st)
{
    fprintf(out, "%d token%s", st->n_output, cli_plural(st->n_output));
    if (st->n_tries)
        fprintf(out, ", found among %d lengths,", st->n_tries);
    fprintf(out, " in %d step%s; the model agrees with %.0f %% of what follows\n", st->n_steps,
            cli_plural(st->n_steps), 100 * (double)st->agreement);
}
