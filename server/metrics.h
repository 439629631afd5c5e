/* What /metrics tells: Prometheus' text form, with vLLM's and llama-server's names where the
 * meaning is the same. Any thread. */
#ifndef DG_SERVER_METRICS_H
#define DG_SERVER_METRICS_H

#include "base/buf.h"
#include "dgemma.h"
#include "gpu.h"
#include "process.h"

typedef struct dg_metrics dg_metrics;

dg_metrics *dg_metrics_create(void); /* NULL: out of memory */
void dg_metrics_free(dg_metrics *m);

/* A block was finished; a request to the engine has ended, so many seconds after it was submitted;
 * a request over HTTP was answered. */
void dg_metrics_block(dg_metrics *m, const dgemma_event *block);
void dg_metrics_request(dg_metrics *m, const dgemma_stats *stats, double seconds);
void dg_metrics_http(dg_metrics *m, int status);

/* Of a model among several. */
typedef struct dg_metrics_loading {
    bool is_loaded;
    int n_waiting;
    uint64_t n_loaded, n_failed, n_unloaded;
    double load_seconds;
    size_t bytes;
} dg_metrics_loading;

/* What is known elsewhere. */
typedef struct dg_metrics_context {
    const char *model; /* "": of none alone */
    dgemma_model_info info;
    dgemma_engine_counters engine;
    const dg_metrics_loading *loading; /* NULL: it is always there */
    dg_process process;
    dg_gpu_state gpu;
    int n_connection, n_exchange;
    uint64_t n_dropped; /* lines of the log */
} dg_metrics_context;

/* Append what is known of a model, and of the server. False: no room. */
bool dg_metrics_print_model(dg_metrics *m, const dg_metrics_context *context, dg_buf *out);
bool dg_metrics_print_server(dg_metrics *m, const dg_metrics_context *context, dg_buf *out);

/* Several models' pages as one, in which each name comes once. */
bool dg_metrics_merge(const dg_buf *pages, size_t n, dg_buf *out);

#endif
