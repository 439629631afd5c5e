#include "bench_report.h"
#include <string.h>
#include "cells.h"
#include "cli.h"

void bench_report_begin(bench_report *r, FILE *out, bool json)
{
    *r = (bench_report){.out = out, .json = json};
    if (json)
        fprintf(out, "{\"dgemma\": \"%s\", \"results\": [", dgemma_version());
}

void bench_report_end(bench_report *r)
{
    if (r->json)
        fputs("\n]}\n", r->out);
}

/* Numbers to hold the others against: reading, and the fastest that it can compute. */
static void keep_rates(bench_report *r, const dgemma_bench_result *m)
{
    r->read_rate = m->n_rates ? m->rates[0].rate : 0;
    r->best_rate = 0;
    for (size_t i = 1; i < m->n_rates; i++)
        if (m->rates[i].rate > r->best_rate) {
            r->best_rate = m->rates[i].rate;
            r->best_name = m->rates[i].name;
        }
}

/* ---- for people ---- */

static const char *duration(char out[32], double seconds)
{
    if (seconds >= 1)
        snprintf(out, 32, "%.3f s", seconds);
    else
        snprintf(out, 32, "%.*f ms", seconds < 0.1 ? 3 : 1, 1e3 * seconds);
    return out;
}

static void print_machine(bench_report *r, const dgemma_bench_result *m)
{
    fprintf(r->out, "%s", r->n_told ? "\n" : "");
    cli_safe_write(r->out, m->model, strlen(m->model));
    fprintf(r->out, ", %d layer%s, on ", m->n_layers, cli_plural(m->n_layers));
    cli_safe_write(r->out, m->device, strlen(m->device));
    fprintf(r->out, "; numerics: %s\n", m->numerics);
    if (!m->n_rates)
        return;
    fprintf(r->out, "at best: reads %.1f GB/s", 1e-9 * m->rates[0].rate);
    for (size_t i = 1; i < m->n_rates; i++)
        fprintf(r->out, ", %s %.3g Gop/s", m->rates[i].name, 1e-9 * m->rates[i].rate);
    fputc('\n', r->out);
}

static void print_load(bench_report *r, const dgemma_bench_result *l)
{
    char load[32], first[32];
    fprintf(r->out, "loaded in %s, first pass %s; %.3g GB of weights, %.3g GB resident",
            duration(load, l->median), duration(first, l->first_pass),
            1e-9 * (double)l->weight_bytes, 1e-9 * (double)l->resident_bytes);
    if (l->device_bytes)
        fprintf(r->out, ", %.3g GB on the device", 1e-9 * (double)l->device_bytes);
    fputs("\n", r->out);
}

static void print_head(bench_report *r)
{
    if (!r->in_table)
        fprintf(r->out, "\n%-18s %8s %6s %12s %25s %4s  %s\n", "", "context", "batch", "median",
                "quartiles", "n", "reached");
    r->in_table = true;
}

/* The share of what the machine could do. */
static void print_shares(bench_report *r, const dgemma_bench_result *f)
{
    if (r->read_rate > 0)
        fprintf(r->out, "%.0f %% of reading, ", 100 * f->bytes / f->median / r->read_rate);
    if (r->best_rate > 0)
        fprintf(r->out, "%.0f %% of %s, ", 100 * f->ops / f->median / r->best_rate, r->best_name);
}

static void print_times(bench_report *r, const char *name, const dgemma_bench_result *f)
{
    char median[32], lower[32], upper[32], quartiles[80] = "";
    print_head(r);
    if (f->n > 1)
        snprintf(quartiles, sizeof quartiles, "%s to %s", duration(lower, f->lower),
                 duration(upper, f->upper));
    fprintf(r->out, "%-18s %8d %6d %12s %25s %4d  ", name, f->context, f->batch,
            duration(median, f->median), quartiles, f->n);
}

/* The share of the fastest rate in floats at which a context was added; 0: nobody knows. */
static double added_share(const dgemma_bench_result *f)
{
    const double rate =
        f->best_float && f->best_float < f->n_rates ? f->rates[f->best_float].rate : 0;
    return f->added > 0 && rate > 0 ? f->added_ops / f->added / rate : 0;
}

static void print_added(bench_report *r, const dgemma_bench_result *f)
{
    char added[32];
    if (f->added <= 0)
        return;
    fprintf(r->out, "%s%s more", f->attention_seconds > 0 ? "attention " : "",
            duration(added, f->added));
    if (added_share(f) > 0)
        fprintf(r->out, " at %.0f %% of %s", 100 * added_share(f), f->rates[f->best_float].name);
    fputs(", ", r->out);
}

static void print_stage(bench_report *r, const dgemma_bench_result *f)
{
    char median[32];
    fprintf(r->out, "  %-33s %11s %5.1f %% of the step\n", f->name, duration(median, f->median),
            100 * cli_per(f->median, r->step));
    r->stages += f->median;
}

static void tell_people(bench_report *r, const dgemma_bench_result *f)
{
    char name[64];
    switch (f->kind) {
    case DGEMMA_BENCH_MACHINE:
        r->in_table = false;
        print_machine(r, f);
        break;
    case DGEMMA_BENCH_LOAD:
        print_load(r, f);
        break;
    case DGEMMA_BENCH_PREFILL:
        snprintf(name, sizeof name, "prompt by %d", f->chunk);
        print_times(r, name, f);
        print_shares(r, f);
        fprintf(r->out, "%.0f tokens/s\n", cli_per(f->context, f->median));
        break;
    case DGEMMA_BENCH_STEP:
        print_times(r, f->name ? f->name : "step", f);
        if (f->name)
            fprintf(r->out, "%+.1f %%, ", 100 * (f->median / r->step - 1));
        print_shares(r, f);
        print_added(r, f);
        if (f->host_seconds > 0)
            fprintf(r->out, "host %.0f us (%.2f %%), ", 1e6 * f->host_seconds,
                    100 * f->host_seconds / f->median);
        fprintf(r->out, "entropy %.2f nats, ", f->entropy);
        if (f->gathered >= 0)
            fprintf(r->out, "%.0f %% of rows gathered, ", 100 * f->gathered);
        if (f->device_bytes)
            fprintf(r->out, "%.3g GB on the device, %.3g above weights and KV\n",
                    1e-9 * (double)f->device_bytes, 1e-9 * (double)f->above_bytes);
        else
            fprintf(r->out, "peak %.3g GB\n", 1e-9 * (double)f->peak_bytes);
        break;
    case DGEMMA_BENCH_BLOCK:
        snprintf(name, sizeof name, "block of %d step%s", f->n_steps, cli_plural(f->n_steps));
        print_times(r, name, f);
        fprintf(r->out, "%.2f of so many steps\n", cli_per(f->median, f->n_steps * r->step));
        break;
    case DGEMMA_BENCH_STAGE:
        print_stage(r, f);
        break;
    case DGEMMA_BENCH_PICTURE:
        print_times(r, "picture", f);
        print_shares(r, f);
        fprintf(r->out, "%.1f pictures/s\n", cli_per(1, f->median));
        break;
    case DGEMMA_BENCH_SKIPPED:
        print_head(r);
        fprintf(r->out, "%-18s %8d %6d  not measured: ", "step", f->context, f->batch);
        cli_safe_write(r->out, f->name, strlen(f->name));
        fputc('\n', r->out);
        break;
    }
}

/* ---- for programs ---- */

static void put_rates(FILE *out, const dgemma_bench_result *m)
{
    fputs(", \"rates\": {", out);
    for (size_t i = 0; i < m->n_rates; i++)
        fprintf(out, "%s\"%s\": %.6g", i ? ", " : "", m->rates[i].name, m->rates[i].rate);
    fputc('}', out);
}

static void put_string(FILE *out, const char *key, const char *value)
{
    if (!value)
        return;
    fprintf(out, ", \"%s\": ", key);
    cli_json_string(out, value, strlen(value));
}

static void put_times(FILE *out, const dgemma_bench_result *f)
{
    fprintf(out,
            ", \"n\": %d, \"median\": %.9g, \"lower\": %.9g, \"upper\": %.9g, \"least\": %.9g, "
            "\"most\": %.9g",
            f->n, f->median, f->lower, f->upper, f->least, f->most);
}

static void put_machine(FILE *out, const dgemma_bench_result *m)
{
    put_string(out, "model", m->model);
    put_string(out, "device", m->device);
    put_string(out, "numerics", m->numerics);
    fprintf(out, ", \"layers\": %d", m->n_layers);
}

static void put_shares(const bench_report *r, const dgemma_bench_result *f)
{
    fprintf(r->out, ", \"bytes\": %.9g, \"ops\": %.9g", f->bytes, f->ops);
    if (r->read_rate > 0)
        fprintf(r->out, ", \"of_read\": %.4g", f->bytes / f->median / r->read_rate);
    if (r->best_rate > 0)
        fprintf(r->out, ", \"of_matrix\": %.4g", f->ops / f->median / r->best_rate);
}

static void tell_programs(bench_report *r, const dgemma_bench_result *f)
{
    static const char *const kinds[] = {"machine", "load",  "prefill", "step",
                                        "block",   "stage", "skipped", "picture"};
    fprintf(r->out, "%s\n  {\"kind\": \"%s\", \"threads\": %d, \"context\": %d, \"batch\": %d",
            r->n_told ? "," : "", kinds[f->kind], f->n_threads, f->context, f->batch);
    put_string(r->out, "name", f->name);
    if (f->n)
        put_times(r->out, f);
    if (f->chunk)
        fprintf(r->out, ", \"chunk\": %d, \"tokens_per_second\": %.6g", f->chunk,
                cli_per(f->context, f->median));
    if (f->n_steps)
        fprintf(r->out, ", \"steps\": %d", f->n_steps);
    if (f->kind == DGEMMA_BENCH_MACHINE)
        put_machine(r->out, f);
    if (f->kind == DGEMMA_BENCH_MACHINE || f->n_rates)
        put_rates(r->out, f);
    if (f->bytes > 0)
        put_shares(r, f);
    if (f->attention_seconds > 0)
        fprintf(r->out, ", \"attention_seconds\": %.9g", f->attention_seconds);
    if (f->host_seconds > 0)
        fprintf(r->out, ", \"host_seconds\": %.9g", f->host_seconds);
    if (f->kind == DGEMMA_BENCH_STEP)
        fprintf(r->out, ", \"entropy\": %.6g", f->entropy);
    if (f->added > 0)
        fprintf(r->out, ", \"added\": %.9g, \"added_ops\": %.9g", f->added, f->added_ops);
    if (added_share(f) > 0)
        fprintf(r->out, ", \"added_of_float\": %.4g", added_share(f));
    if (f->kind == DGEMMA_BENCH_STEP && f->gathered >= 0)
        fprintf(r->out, ", \"gathered\": %.6g", f->gathered);
    if (f->kind == DGEMMA_BENCH_LOAD)
        fprintf(r->out, ", \"first_pass\": %.9g, \"weight_bytes\": %zu, \"resident_bytes\": %zu",
                f->first_pass, f->weight_bytes, f->resident_bytes);
    if (f->work_bytes)
        fprintf(r->out, ", \"work_bytes\": %zu", f->work_bytes);
    if (f->kv_bytes)
        fprintf(r->out, ", \"kv_bytes\": %zu", f->kv_bytes);
    if (f->peak_bytes)
        fprintf(r->out, ", \"peak_bytes\": %zu", f->peak_bytes);
    if (f->device_bytes)
        fprintf(r->out, ", \"device_bytes\": %zu", f->device_bytes);
    if (f->above_bytes)
        fprintf(r->out, ", \"above_bytes\": %zu", f->above_bytes);
    fputc('}', r->out);
}

void bench_report_tell(bench_report *r, const dgemma_bench_result *f)
{
    if (f->kind == DGEMMA_BENCH_MACHINE || f->n_rates)
        keep_rates(r, f);
    if (f->kind == DGEMMA_BENCH_STEP && !f->name)
        r->step = f->median;
    if (r->json)
        tell_programs(r, f);
    else
        tell_people(r, f);
    r->n_told++;
    fflush(r->out);
}
