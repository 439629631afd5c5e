#include "metrics.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/error.h"
#include "base/utf8.h"
#include "model_spec.h"

enum { MAX_BUCKETS = 20, MAX_STATUS = 600 };

typedef struct histogram {
    const char *name, *help;
    double bound[MAX_BUCKETS]; /* upper ends, rising; 0 ends the list */
    uint64_t n[MAX_BUCKETS + 1];
    double sum;
} histogram;

typedef enum histogram_id {
    FIRST_TEXT,
    LATENCY,
    QUEUE,
    PREFILL,
    DECODE,
    INFERENCE,
    PER_TOKEN,
    PROMPT_TOKENS,
    OUTPUT_TOKENS,
    BLOCK_SECONDS,
    BLOCK_STEPS,
    TOKENS_PER_STEP,
    N_HISTOGRAM
} histogram_id;

#define SECONDS                                                                                    \
    {                                                                                              \
        0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640                     \
    }
#define TOKENS                                                                                     \
    {                                                                                              \
        1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144                  \
    }

static const histogram shapes[N_HISTOGRAM] = {
    [FIRST_TEXT] = {.name = "vllm:time_to_first_token_seconds",
                    .help = "from the arrival of a request to its first text",
                    .bound = SECONDS},
    [LATENCY] = {.name = "vllm:e2e_request_latency_seconds",
                 .help = "from the arrival of a request to its end",
                 .bound = SECONDS},
    [QUEUE] = {.name = "vllm:request_queue_time_seconds",
               .help = "waiting for the engine",
               .bound = SECONDS},
    [PREFILL] = {.name = "vllm:request_prefill_time_seconds",
                 .help = "passes that encoded the prompt",
                 .bound = SECONDS},
    [DECODE] = {.name = "vllm:request_decode_time_seconds",
                .help = "passes with a denoising step",
                .bound = SECONDS},
    [INFERENCE] = {.name = "vllm:request_inference_time_seconds",
                   .help = "prefill and decode together",
                   .bound = SECONDS},
    [PER_TOKEN] = {.name = "vllm:request_time_per_output_token_seconds",
                   .help = "decode time over the tokens of the answer",
                   .bound = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}},
    [PROMPT_TOKENS] = {.name = "vllm:request_prompt_tokens",
                       .help = "tokens of the prompt",
                       .bound = TOKENS},
    [OUTPUT_TOKENS] = {.name = "vllm:request_generation_tokens",
                       .help = "tokens of the answer",
                       .bound = TOKENS},
    [BLOCK_SECONDS] = {.name = "dgemma:block_seconds",
                       .help = "from the start of a block to its end",
                       .bound = SECONDS},
    [BLOCK_STEPS] = {.name = "dgemma:steps_per_block",
                     .help = "denoising steps of a block",
                     .bound = {1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128}},
    [TOKENS_PER_STEP] = {.name = "dgemma:tokens_per_step",
                         .help = "tokens of a block over its steps",
                         .bound = {0.5, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256}},
};

struct dg_metrics {
    pthread_mutex_t lock; /* for what follows */
    histogram histogram[N_HISTOGRAM];
    uint64_t n_ended[DGEMMA_END_FAILED + 1];
    uint64_t n_prompt, n_cached, n_output, n_block, n_step;
    uint64_t n_position, n_canvas_token, n_committed; /* positions: in all steps */
    double prompt_seconds, denoise_seconds;
    uint64_t http[MAX_STATUS];
};

dg_metrics *dg_metrics_create(void)
{
    dg_metrics *m = dg_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    memcpy(m->histogram, shapes, sizeof shapes);
    return m;
}

void dg_metrics_free(dg_metrics *m)
{
    if (m)
        pthread_mutex_destroy(&m->lock);
    dg_free(m);
}

/* ---- counting ---- */

static int n_bucket(const histogram *h)
{
    int n = 0;
    while (n < MAX_BUCKETS && h->bound[n] > 0)
        n++;
    return n;
}

static void observe(dg_metrics *m, histogram_id id, double value)
{
    histogram *h = &m->histogram[id];
    int i = 0, n = n_bucket(h);
    while (i < n && value > h->bound[i])
        i++;
    h->n[i]++;
    h->sum += value;
}

void dg_metrics_block(dg_metrics *m, const dgemma_event *block)
{
    int n_step = block->step + 1;
    pthread_mutex_lock(&m->lock);
    observe(m, BLOCK_SECONDS, block->seconds);
    observe(m, BLOCK_STEPS, n_step);
    observe(m, TOKENS_PER_STEP, (double)block->n_tokens / n_step);
    m->n_committed += block->n_tokens;
    m->n_canvas_token += (uint64_t)block->n_canvas;
    pthread_mutex_unlock(&m->lock);
}

void dg_metrics_request(dg_metrics *m, const dgemma_stats *s, double seconds)
{
    pthread_mutex_lock(&m->lock);
    m->n_ended[s->end]++;
    m->n_prompt += (uint64_t)s->n_prompt;
    m->n_cached += (uint64_t)s->n_prompt_cached;
    m->n_output += (uint64_t)s->n_output;
    m->n_block += (uint64_t)s->n_blocks;
    m->n_step += (uint64_t)s->n_steps;
    m->n_position += s->n_positions;
    m->prompt_seconds += s->prompt_seconds;
    m->denoise_seconds += s->denoise_seconds;
    if (s->first_text_seconds > 0)
        observe(m, FIRST_TEXT, s->queue_seconds + s->first_text_seconds);
    observe(m, LATENCY, seconds);
    observe(m, QUEUE, s->queue_seconds);
    observe(m, PREFILL, s->prompt_seconds);
    observe(m, DECODE, s->denoise_seconds);
    observe(m, INFERENCE, s->prompt_seconds + s->denoise_seconds);
    if (s->n_output)
        observe(m, PER_TOKEN, s->denoise_seconds / s->n_output);
    observe(m, PROMPT_TOKENS, s->n_prompt);
    observe(m, OUTPUT_TOKENS, s->n_output);
    pthread_mutex_unlock(&m->lock);
}

void dg_metrics_http(dg_metrics *m, int status)
{
    pthread_mutex_lock(&m->lock);
    if (status >= 0 && status < MAX_STATUS)
        m->http[status]++;
    pthread_mutex_unlock(&m->lock);
}

/* ---- printing ---- */

typedef struct page {
    dg_buf *out;
    const char *label; /* model_name="…", escaped */
    bool full;
} page;

DG_PRINTF(2, 3)
static void print(page *p, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    p->full = p->full || !dg_buf_puts(p->out, line);
}

static void head(page *p, const char *name, const char *type, const char *help)
{
    print(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void number(page *p, const char *name, const char *type, const char *help, double value)
{
    head(p, name, type, help);
    print(p, "%s{%s} %.17g\n", name, p->label, value);
}

static void print_histogram(page *p, const histogram *h)
{
    uint64_t n = 0;
    head(p, h->name, "histogram", h->help);
    for (int i = 0; i < n_bucket(h); i++) {
        n += h->n[i];
        print(p, "%s_bucket{%s,le=\"%g\"} %llu\n", h->name, p->label, h->bound[i],
              (unsigned long long)n);
    }
    n += h->n[n_bucket(h)];
    print(p, "%s_bucket{%s,le=\"+Inf\"} %llu\n", h->name, p->label, (unsigned long long)n);
    print(p, "%s_sum{%s} %.17g\n%s_count{%s} %llu\n", h->name, p->label, h->sum, h->name, p->label,
          (unsigned long long)n);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* The engine counts its turns; the sum of their times is the time it was busy. */
static void print_turns(page *p, const dgemma_engine_counters *e)
{
    const char *name = "dgemma:turn_seconds";
    unsigned long long n = 0;
    head(p, name, "histogram", "turns of the engine: a pass over all requests, a picture");
    for (size_t i = 0; i < DG_COUNT(e->n_turns); i++) {
        char bound[32] = "+Inf";
        if (i + 1 < DG_COUNT(e->n_turns))
            snprintf(bound, sizeof bound, "%g", 1e-3 * (double)(1 << i));
        n += e->n_turns[i];
        print(p, "%s_bucket{%s,le=\"%s\"} %llu\n", name, p->label, bound, n);
    }
    print(p, "%s_sum{%s} %.17g\n%s_count{%s} %llu\n", name, p->label, e->busy_seconds, name,
          p->label, n);
}

/* Room for keys and values as those count it who share requests out: in blocks of tokens. Sliding
 * layers forget, so that a token has no size of its own; a request that fills the context has. */
static void print_blocks(page *p, const dg_metrics_context *c)
{
    enum { BLOCK = 64 };
    double tokens = per((double)c->engine.kv_bytes_total, (double)c->info.kv_bytes_full) *
                    c->info.context_length;
    head(p, "vllm:cache_config_info", "gauge", "room for keys and values, in blocks of tokens");
    print(p, "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%.0f\"} 1\n", p->label,
          BLOCK, floor(tokens / BLOCK));
}

static void print_engine(page *p, const dg_metrics_context *c)
{
    const dgemma_engine_counters *e = &c->engine;
    const char *G = "gauge", *C = "counter";
    number(p, "vllm:num_requests_running", G, "requests in the batch", e->n_running);
    number(p, "vllm:num_requests_waiting", G, "requests in the queue", e->n_waiting);
    number(p, "vllm:kv_cache_usage_perc", G, "memory for keys and values in use, 0 to 1",
           per((double)e->kv_bytes_used, (double)e->kv_bytes_total));
    print_blocks(p, c);
    number(p, "llamacpp:requests_processing", G, "requests in the batch", e->n_running);
    number(p, "llamacpp:requests_deferred", G, "requests in the queue", e->n_waiting);
    number(p, "llamacpp:n_decode_total", C, "passes of the model", (double)e->n_passes);
    number(p, "dgemma:kv_bytes_used", G, "keys and values of running requests",
           (double)e->kv_bytes_used);
    number(p, "dgemma:kv_bytes_cached", G, "keys and values in the prefix cache",
           (double)e->kv_bytes_cached);
    number(p, "dgemma:kv_bytes_limit", G, "memory for keys and values", (double)e->kv_bytes_total);
    number(p, "dgemma:prefix_cache_evictions_total", C, "prefixes forgotten to make room",
           (double)e->n_evictions);
    number(p, "dgemma:busy_seconds_total", C, "time in turns of the engine", e->busy_seconds);
    if (e->device_seconds > 0)
        number(p, "dgemma:device_seconds_total", C, "of it, in which the GPU computed",
               e->device_seconds);
    print_turns(p, e);
}

static void print_http(page *p, const dg_metrics *m, const dg_metrics_context *c)
{
    const char *G = "gauge", *C = "counter";
    number(p, "dgemma:connections", G, "open connections", c->n_connection);
    number(p, "dgemma:http_requests_active", G, "requests over HTTP being answered", c->n_exchange);
    number(p, "dgemma:log_lines_dropped_total", C, "lines of the log that nobody read in time",
           (double)c->n_dropped);
    head(p, "dgemma:http_requests_total", "counter", "requests over HTTP, by status");
    for (int i = 0; i < MAX_STATUS; i++)
        if (m->http[i])
            print(p, "dgemma:http_requests_total{%s,status=\"%d\"} %llu\n", p->label, i,
                  (unsigned long long)m->http[i]);
}

/* A model that comes and goes. */
static void print_loading(page *p, const dg_metrics_loading *l)
{
    const char *G = "gauge", *C = "counter";
    number(p, "dgemma:model_loaded", G, "whether the model is loaded", l->is_loaded);
    number(p, "dgemma:model_bytes", G, "memory that it takes when it is",
           l->is_loaded ? (double)l->bytes : 0);
    number(p, "dgemma:model_waiting", G, "requests that wait for it to be loaded", l->n_waiting);
    number(p, "dgemma:model_loads_total", C, "how often it was loaded", (double)l->n_loaded);
    number(p, "dgemma:model_load_failures_total", C, "how often that failed", (double)l->n_failed);
    number(p, "dgemma:model_unloads_total", C, "how often it was unloaded", (double)l->n_unloaded);
    number(p, "dgemma:model_load_seconds_total", C, "time that loading took", l->load_seconds);
}

static void print_counts(page *p, const dg_metrics *m)
{
    const char *C = "counter";
    double prompt = (double)m->n_prompt, cached = (double)m->n_cached, output = (double)m->n_output,
           block = (double)m->n_block, step = (double)m->n_step;
    number(p, "vllm:prompt_tokens_total", C, "tokens of prompts", prompt);
    number(p, "vllm:prompt_tokens_cached_total", C, "of those, found in the prefix cache", cached);
    number(p, "vllm:prefix_cache_queries_total", C, "tokens looked for in the prefix cache",
           prompt);
    number(p, "vllm:prefix_cache_hits_total", C, "tokens found there", cached);
    number(p, "vllm:generation_tokens_total", C, "tokens of answers", output);
    number(p, "vllm:diffusion_num_denoising_steps_total", C, "steps of all blocks", step);
    number(p, "vllm:diffusion_num_canvas_positions_total", C, "positions in all steps",
           (double)m->n_position);
    number(p, "vllm:diffusion_num_committed_tokens_total", C, "tokens that blocks ended with",
           (double)m->n_committed);
    number(p, "llamacpp:prompt_tokens_total", C, "tokens of prompts that were encoded",
           prompt - cached);
    number(p, "llamacpp:prompt_tokens_cached_total", C, "tokens found in the cache", cached);
    number(p, "llamacpp:prompt_seconds_total", C, "time that encoded prompts", m->prompt_seconds);
    number(p, "llamacpp:tokens_predicted_total", C, "tokens of answers", output);
    number(p, "llamacpp:tokens_predicted_seconds_total", C, "time in denoising",
           m->denoise_seconds);
    number(p, "llamacpp:prompt_tokens_seconds", "gauge", "prompt tokens per second",
           per(prompt - cached, m->prompt_seconds));
    number(p, "llamacpp:predicted_tokens_seconds", "gauge", "answer tokens per second",
           per(output, m->denoise_seconds));
    number(p, "llamacpp:diffusion_blocks_total", C, "blocks", block);
    number(p, "llamacpp:diffusion_steps_total", C, "steps of all blocks", step);
    number(p, "llamacpp:diffusion_canvas_tokens_total", C, "positions in all blocks",
           (double)m->n_canvas_token);
    number(p, "llamacpp:diffusion_ms_per_step", "gauge", "mean time of a step",
           per(1e3 * m->denoise_seconds, step));
}

/* What is not known of the GPU, or of none, is not there. */
static void print_gpu(page *p, const dg_gpu_state *g)
{
    const struct {
        const char *name, *help;
        double value;
    } all[] = {
        {"dgemma:gpu_memory_used_bytes", "memory of the GPU in use, by whomever", g->used_bytes},
        {"dgemma:gpu_memory_limit_bytes", "memory of the GPU", g->total_bytes},
        {"dgemma:gpu_utilization_ratio", "share of time in which the GPU ran something, 0 to 1",
         g->utilization},
        {"dgemma:gpu_temperature_celsius", "temperature of the GPU", g->celsius},
        {"dgemma:gpu_power_watts", "power that the GPU draws", g->watts},
    };
    for (size_t i = 0; i < DG_COUNT(all); i++)
        if (all[i].value >= 0)
            number(p, all[i].name, "gauge", all[i].help, all[i].value);
}

/* The names that every Prometheus client library has, without our label. */
static void print_process(page *p, const dg_process *s)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } all[] = {
        {"process_cpu_seconds_total", "counter", "processor time", s->cpu_seconds},
        {"process_resident_memory_bytes", "gauge", "memory that is there", s->resident_bytes},
        {"process_virtual_memory_bytes", "gauge", "memory that has addresses", s->virtual_bytes},
        {"process_open_fds", "gauge", "open files", s->n_open},
        {"process_max_fds", "gauge", "files that may be open", s->max_open},
        {"process_threads", "gauge", "threads", s->n_thread},
        {"process_start_time_seconds", "gauge", "when it started, since 1970", s->started},
    };
    for (size_t i = 0; i < DG_COUNT(all); i++) {
        if (all[i].value < 0)
            continue;
        head(p, all[i].name, all[i].type, all[i].help);
        print(p, "%s %.17g\n", all[i].name, all[i].value);
    }
}

static void print_ends(page *p, const dg_metrics *m)
{
    static const struct {
        const char *reason;
        dgemma_end end[2];
    } reasons[] = {{"stop", {DGEMMA_END_STOP, DGEMMA_END_STOP}},
                   {"length", {DGEMMA_END_LENGTH, DGEMMA_END_CONTEXT}},
                   {"tool_calls", {DGEMMA_END_TOOL_CALLS, DGEMMA_END_TOOL_CALLS}},
                   {"abort", {DGEMMA_END_CANCELLED, DGEMMA_END_CANCELLED}},
                   {"error", {DGEMMA_END_FAILED, DGEMMA_END_FAILED}}};
    head(p, "vllm:request_success_total", "counter", "requests to the engine, by how they ended");
    for (size_t i = 0; i < DG_COUNT(reasons); i++) {
        const dgemma_end *end = reasons[i].end;
        uint64_t n = m->n_ended[end[0]] + (end[1] != end[0] ? m->n_ended[end[1]] : 0);
        print(p, "vllm:request_success_total{%s,finished_reason=\"%s\"} %llu\n", p->label,
              reasons[i].reason, (unsigned long long)n);
    }
}

/* model_name="…", with quotes, backslashes and newlines in it made harmless, and UTF-8 whatever the
 * name was */
static void make_label(char *out, size_t size, const char *model)
{
    size_t at = (size_t)snprintf(out, size, "model_name=\""), left = strlen(model);
    while (left && at + 8 < size) {
        size_t n = dg_utf8_decode(model, left, NULL);
        if (*model == '"' || *model == '\\')
            out[at++] = '\\';
        memcpy(out + at, !n ? "?" : *model == '\n' ? " " : model, n ? n : 1);
        at += n ? n : 1;
        model += n ? n : 1;
        left -= n ? n : 1;
    }
    snprintf(out + at, size - at, "\"");
}

/* Room for the longest name with all of it escaped: names that are cut could become the same. */
enum { LABEL_BYTES = 2 * DG_MODEL_NAME_MAX + 32 };

bool dg_metrics_print_model(dg_metrics *m, const dg_metrics_context *context, dg_buf *out)
{
    char label[LABEL_BYTES];
    page p = {.out = out, .label = label};
    make_label(label, sizeof label, context->model);
    print_engine(&p, context);
    if (context->loading)
        print_loading(&p, context->loading);
    pthread_mutex_lock(&m->lock);
    print_counts(&p, m);
    print_ends(&p, m);
    for (int i = 0; i < N_HISTOGRAM; i++)
        print_histogram(&p, &m->histogram[i]);
    pthread_mutex_unlock(&m->lock);
    return !p.full;
}

bool dg_metrics_print_server(dg_metrics *m, const dg_metrics_context *context, dg_buf *out)
{
    char label[LABEL_BYTES];
    page p = {.out = out, .label = label};
    make_label(label, sizeof label, context->model);
    pthread_mutex_lock(&m->lock);
    print_http(&p, m, context);
    pthread_mutex_unlock(&m->lock);
    print_gpu(&p, &context->gpu);
    print_process(&p, &context->process);
    return !p.full;
}
