/* From the host's batch to the device's, results back, and the graphs in between.
 *
 * A pass's stages are launched one by one the first time that its shape comes, captured as a graph
 * the second time, and replayed from then on: stages then have nothing to do, and finish() launches
 * the graph, which takes the batch from the host's memory first.
 *
 * finish() waits for the results, not for the soft embedding behind them, which is a graph of its
 * own: whatever uses the device afterwards is behind it in the stream. Kernels write what they find
 * into the host's memory: a few bytes a row, and a copy behind them would be one more thing that
 * the host waits for. */
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "cuda/cuda_internal.h"

enum { FIRST_TAIL_BYTES = 1 << 20 };

/* What is taken from the host is so many bytes or a multiple: a graph takes as many each time. */
enum { TAKEN_BYTES = 16 << 10 };

static size_t taken(size_t bytes)
{
    return (bytes + TAKEN_BYTES - 1) / TAKEN_BYTES * TAKEN_BYTES;
}

/* ---- places: as many rows as the pass has, so that no more than those is sent and fetched.
 * Passes of one shape have their arrays at the same places, which is what a graph needs. ---- */

static size_t place(dg_cuda_batch *b, unsigned char *base, int n_row, int n_segment)
{
    size_t rows = (size_t)n_row, segments = (size_t)n_segment, at = 0;
    struct {
        void **to;
        size_t bytes;
    } list[] = {
        {(void **)&b->token, rows * sizeof *b->token},
        {(void **)&b->position, rows * sizeof *b->position},
        {(void **)&b->segment_of, rows * sizeof *b->segment_of},
        {(void **)&b->seen[DG_KV_SLIDING], 2 * rows * sizeof *b->seen[0]},
        {(void **)&b->seen[DG_KV_GLOBAL], 2 * rows * sizeof *b->seen[0]},
        {(void **)&b->segment[DG_KV_SLIDING], segments * sizeof *b->segment[0]},
        {(void **)&b->segment[DG_KV_GLOBAL], segments * sizeof *b->segment[0]},
        {(void **)&b->uses, segments * sizeof *b->uses},
        {(void **)&b->feature, rows * sizeof *b->feature},
        {(void **)&b->word, rows * sizeof *b->word},
        {(void **)&b->tail, 0},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        *list[i].to = base ? base + at : NULL;
        at += (list[i].bytes + 255) / 256 * 256;
    }
    return at;
}

static size_t place_found(dg_cuda_findings *f, unsigned char *base, int n_row)
{
    size_t rows = (size_t)n_row, at = 0;
    struct {
        void **to;
        size_t bytes;
    } list[] = {
        {(void **)&f->entropy, rows * sizeof *f->entropy},
        {(void **)&f->argmax, rows * sizeof *f->argmax},
        {(void **)&f->drawn, rows * sizeof *f->drawn},
        {(void **)&f->gathered, rows * sizeof *f->gathered},
        {(void **)&f->logprob, rows * sizeof *f->logprob},
        {(void **)&f->top_logprob, rows * DG_CUDA_MAX_TOP * sizeof *f->top_logprob},
        {(void **)&f->top_id, rows * DG_CUDA_MAX_TOP * sizeof *f->top_id},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        *list[i].to = base ? base + at : NULL;
        at += (list[i].bytes + 255) / 256 * 256;
    }
    return at;
}

size_t dg_cuda_batch_bytes(const dg_plan *plan)
{
    dg_cuda_batch b;
    return taken(place(&b, NULL, plan->n_row, plan->n_segment) + FIRST_TAIL_BYTES);
}

/* Makes the blob so large that behind the largest batch the tail has tail_bytes; graphs know the
 * old places. */
static bool blob_room(dg_cuda *cu, size_t tail_bytes)
{
    dg_cuda_batch b;
    size_t need = taken(place(&b, NULL, cu->plan.n_row, cu->plan.n_segment) + tail_bytes);
    if (cu->device_blob && need <= cu->blob_bytes)
        return true;
    dg_cuda_graphs_drop(cu);
    cudaStreamSynchronize(cu->stream);
    cudaFreeHost(cu->host_blob);
    cu->base.free(&cu->base, cu->device_blob);
    cu->host_blob = NULL;
    cu->blob_bytes = 0;
    cu->device_blob = cu->base.alloc(&cu->base, need);
    if (!cu->device_blob || cudaMallocHost(&cu->host_blob, need))
        return false;
    cu->blob_bytes = need;
    return true;
}

dgemma_status dg_cuda_batch_plan(dg_cuda *cu, dgemma_error *err)
{
    cu->base.free(&cu->base, cu->device_blob);
    cudaFreeHost(cu->found_memory);
    cu->device_blob = cu->found_memory = NULL;
    size_t found_bytes = place_found(&cu->found, NULL, cu->plan.n_row);
    if (cudaMallocHost(&cu->found_memory, found_bytes) || !blob_room(cu, FIRST_TAIL_BYTES))
        return dg_fail(err, DGEMMA_E_NOMEM,
                       "%zu MiB for batches of %d rows do not fit on the device: %zu MiB are left",
                       (dg_cuda_batch_bytes(&cu->plan) >> 20) + 1, cu->plan.n_row,
                       cu->base.room(&cu->base) >> 20);
    return DGEMMA_OK;
}

/* ---- filling it ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static size_t tail_bytes(const dg_cuda *cu, const dg_batch *b)
{
    size_t bytes = 0;
    const dg_asked *before = NULL;
    for (int i = 0; i < b->n_segment; i++) {
        const dg_segment *s = &b->segment[i];
        const dg_vocabulary_options *o = s->canvas ? s->options : NULL;
        for (int g = 0; g < DG_KV_GROUPS; g++)
            bytes += rounded((size_t)s->n_page[g] * sizeof(int32_t));
        bytes += rounded((size_t)s->n_adapter * sizeof *s->adapter);
        if (o)
            bytes += rounded((size_t)o->n_banned * 4) + 2 * rounded((size_t)o->n_bias * 4);
        if (o && o->asked)
            bytes += 255 + dg_cuda_asked_bytes(cu, s, before); /* they begin at multiples of 256 */
        before = o && o->asked ? o->asked : before;
    }
    return bytes;
}

/* A place of the tail, here and there. */
static void *take(dg_cuda *cu, size_t *at, size_t bytes, const void **device)
{
    void *host = cu->on_host.tail + *at;
    *device = cu->on_device.tail + *at;
    *at += rounded(bytes);
    return host;
}

static dg_cuda_draw draw_kind(const dg_draw_options *o)
{
    if (!o)
        return DG_CUDA_DRAW_PLAIN;
    if (o->temperature == 0)
        return DG_CUDA_DRAW_ARGMAX;
    if (o->top_k > 0 || o->top_p < 1 || o->min_p > 0)
        return DG_CUDA_DRAW_FILTERED;
    return o->temperature == 1 ? DG_CUDA_DRAW_PLAIN : DG_CUDA_DRAW_HEATED;
}

/* What every row of a canvas has in common. */
static dg_cuda_word_row word_row(dg_cuda *cu, const dg_segment *s, size_t *at)
{
    const dg_vocabulary_options *o = s->options;
    dg_cuda_word_row row = {.temperature = s->temperature, .first_step = s->first_step};
    if (!o)
        return row;
    const void *d;
    int32_t *banned = take(cu, at, (size_t)o->n_banned * 4, &d);
    row.banned = d;
    if (o->n_banned)
        memcpy(banned, o->banned, (size_t)o->n_banned * 4);
    int32_t *id = take(cu, at, (size_t)o->n_bias * 4, &d);
    row.bias_id = d;
    float *bias = take(cu, at, (size_t)o->n_bias * 4, &d);
    row.bias = d;
    for (int i = 0; i < o->n_bias; i++) {
        id[i] = o->bias[i].id;
        bias[i] = o->bias[i].bias;
    }
    row.n_banned = o->n_banned;
    row.n_bias = o->n_bias;
    row.n_top = o->n_top;
    row.draw = draw_kind(o->draw);
    if (o->draw) {
        row.draw_temperature = o->draw->temperature;
        row.top_k = o->draw->top_k;
        row.top_p = o->draw->top_p;
        row.min_p = o->draw->min_p;
    }
    return row;
}

static dg_cuda_uses uses(dg_cuda *cu, const dg_segment *s, size_t *at)
{
    const void *d;
    dg_adapter_use *use = take(cu, at, (size_t)s->n_adapter * sizeof *use, &d);
    for (int i = 0; i < s->n_adapter; i++)
        use[i] = s->adapter[i];
    return (dg_cuda_uses){.use = d, .n = s->n_adapter, .canvas = s->canvas};
}

static void fill_segment(dg_cuda *cu, const dg_batch *b, int index, size_t *at, size_t *answered)
{
    const dg_segment *s = &b->segment[index];
    dg_cuda_batch *to = &cu->on_host;
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        const void *d;
        int32_t *page = take(cu, at, (size_t)s->n_page[g] * sizeof *page, &d);
        /* from the pages' numbers to their places in the slab */
        for (int i = 0; i < s->n_page[g]; i++)
            page[i] =
                s->page[g][i] == DG_NO_PAGE
                    ? DG_NO_PAGE
                    : (int32_t)(dg_cuda_place_of(&b->kv->places, (dg_kv_group)g, s->page[g][i]) /
                                DG_CUDA_PLACE);
        to->segment[g][index] = (dg_cuda_segment){.canvas = s->canvas,
                                                  .first_row = s->first_row,
                                                  .n_row = s->n_row,
                                                  .position = s->position,
                                                  .page = d,
                                                  .canvas_page = s->first_row / DG_PAGE + index};
    }
    to->uses[index] = uses(cu, s, at);
    dg_cuda_word_row word = s->canvas ? word_row(cu, s, at) : (dg_cuda_word_row){0};
    if (s->canvas && s->options && s->options->asked) {
        *at = (*at + 255) / 256 * 256;
        word.asked = dg_cuda_ask(cu, s, at, answered);
    }
    size_t n_embd = (size_t)cu->plan.n_embd;
    for (int i = 0; i < s->n_row; i++) {
        int r = s->first_row + i;
        to->segment_of[r] = index;
        to->feature[r] =
            b->feature && b->feature[r] >= 0 ? s->features + (size_t)b->feature[r] * n_embd : NULL;
        for (int g = 0; g < DG_KV_GROUPS; g++) {
            int window = cu->plan.window[g];
            dg_span seen = s->canvas
                               ? dg_canvas_span(s->position, window)
                               : dg_encode_span(b->position[r], b->block[r], window, b->images);
            to->seen[g][2 * r] = seen.first;
            to->seen[g][2 * r + 1] = seen.end;
        }
        if (!s->canvas)
            continue;
        dg_cuda_word_row *row = &to->word[r - b->n_encode];
        *row = word;
        row->uniform = b->uniform[r - b->n_encode];
        row->soft = s->soft ? s->soft + (size_t)i * n_embd : NULL;
        word.asked = dg_cuda_ask_next(word.asked);
    }
}

/* ---- graphs ---- */

static void graph_drop(dg_cuda_graph *g)
{
    if (g->exec)
        cudaGraphExecDestroy(g->exec);
    if (g->rest)
        cudaGraphExecDestroy(g->rest);
    memset(g, 0, sizeof *g);
}

void dg_cuda_graphs_drop(dg_cuda *cu)
{
    for (int i = 0; i < DG_CUDA_GRAPHS; i++)
        graph_drop(&cu->graph[i]);
}

static dg_cuda_shape shape_of(const dg_batch *b, size_t batch_bytes)
{
    dg_cuda_shape s;
    memset(&s, 0, sizeof s); /* it is compared as bytes */
    s.batch_bytes = batch_bytes;
    s.n_row = b->n_row;
    s.n_encode = b->n_encode;
    s.n_segment = b->n_segment;
    s.feature = b->feature != NULL;
    s.kv = b->kv;
    s.given = b->given != NULL;
    s.listed = b->out.logprob != NULL;
    for (int i = 0; i < b->n_segment; i++) {
        const dg_segment *seg = &b->segment[i];
        s.soft |= seg->canvas && seg->soft && !seg->last_step;
        s.adapted |= seg->n_adapter > 0;
        s.changed |=
            seg->canvas && seg->options && (seg->options->n_bias || seg->options->n_banned);
        s.asked |= seg->canvas && seg->options && seg->options->asked;
        s.special |=
            seg->canvas && seg->options && draw_kind(seg->options->draw) >= DG_CUDA_DRAW_HEATED;
    }
    return s;
}

/* The place of this shape, or the one that was not used for longest. */
static dg_cuda_graph *graph_for(dg_cuda *cu, const dg_cuda_shape *shape)
{
    dg_cuda_graph *oldest = &cu->graph[0];
    for (int i = 0; i < DG_CUDA_GRAPHS; i++) {
        dg_cuda_graph *g = &cu->graph[i];
        if (g->used && memcmp(&g->shape, shape, sizeof *shape) == 0)
            return g;
        if (g->used < oldest->used)
            oldest = g;
    }
    graph_drop(oldest);
    oldest->shape = *shape;
    return oldest;
}

/* ---- begin and finish ---- */

static dg_cuda_marks *marks_of(dg_cuda *cu)
{
    return &cu->marks[cu->turn];
}

static void record_begin(dg_cuda *cu)
{
    dg_cuda_failed(cu, cudaEventRecord(marks_of(cu)->from, cu->stream), "a pass");
}

static void next_marks(dg_cuda *cu)
{
    cu->turn ^= 1;
    marks_of(cu)->rest = false;
}

void dg_cuda_mark_begin(dg_cuda *cu)
{
    next_marks(cu);
    record_begin(cu);
}

static void begin_capture(dg_cuda *cu)
{
    dg_cuda_failed(cu, cudaStreamBeginCapture(cu->stream, cudaStreamCaptureModeThreadLocal),
                   "recording a pass");
}

void dg_cuda_begin(dg_backend *be, const dg_batch *batch)
{
    dg_cuda *cu = dg_cuda_of(be);
    cu->batch = batch;
    cu->error = cudaSuccess;
    cu->replay = cu->capture = false;
    cu->add.x = cu->joined.x = cu->soft_joined.x = NULL;
    cu->experts_x = NULL;
    cu->n_angles = 0;
    memset(cu->angles, 0, sizeof cu->angles);
    cu->route_begun = cu->routed_aside = false;
    cu->n_pass++;
    if (cudaSetDevice(cu->device) || !blob_room(cu, tail_bytes(cu, batch)) ||
        !dg_cuda_answers_room(cu, batch)) {
        dg_cuda_failed(cu, cudaErrorMemoryAllocation, "the batch");
        return;
    }
    size_t at = 0, answered = 0, rows = (size_t)batch->n_row;
    cu->class_of = NULL;
    place(&cu->on_host, cu->host_blob, batch->n_row, batch->n_segment);
    place(&cu->on_device, cu->device_blob, batch->n_row, batch->n_segment);
    place_found(&cu->found, cu->found_memory, batch->n_row - batch->n_encode);
    if (batch->token) {
        memcpy(cu->on_host.token, batch->token, rows * sizeof *batch->token);
        memcpy(cu->on_host.position, batch->position, rows * sizeof *batch->position);
    }
    for (int i = 0; i < batch->n_segment; i++)
        fill_segment(cu, batch, i, &at, &answered);
    size_t bytes = (size_t)(cu->on_host.tail - (unsigned char *)cu->host_blob) + at;
    next_marks(cu);
    cu->shape = shape_of(batch, taken(bytes));
    if (!batch->watched && !batch->given) {
        dg_cuda_graph *g = graph_for(cu, &cu->shape);
        cu->replay = g->exec != NULL;
        cu->capture = !g->exec && g->used;
        g->used = cu->n_pass;
        if (cu->capture)
            begin_capture(cu);
    }
    if (!cu->replay && !cu->capture)
        record_begin(cu);
    if (!dg_cuda_idle(cu))
        dg_cuda_failed(
            cu, dg_cuda_take(cu->stream, cu->device_blob, cu->host_blob, cu->shape.batch_bytes),
            "the batch");
}

static void end_capture(dg_cuda *cu, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(cu->stream, &graph);
    if (!error)
        error = cudaGraphInstantiate(out, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    dg_cuda_failed(cu, error, "keeping a pass");
}

static void fetch_answers(dg_cuda *cu, cudaStream_t stream)
{
    if (cu->answer_bytes)
        dg_cuda_failed(cu,
                       cudaMemcpyAsync(cu->host_answers, cu->answers, cu->answer_bytes,
                                       cudaMemcpyDeviceToHost, stream),
                       "the answers");
}

/* The results are there; answers come beside what the stream does next. */
static void mark_found(dg_cuda *cu)
{
    dg_cuda_marks *m = marks_of(cu);
    m->rest = true;
    dg_cuda_failed(cu, cudaEventRecord(m->found, cu->stream), "the results");
    if (!cu->answer_bytes)
        return;
    dg_cuda_failed(cu, cudaStreamWaitEvent(cu->side, m->found, 0), "the results");
    fetch_answers(cu, cu->side);
    dg_cuda_failed(cu, cudaEventRecord(cu->fetched, cu->side), "the results");
}

/* By the last stage, in front of what only the next pass needs. */
void dg_cuda_results_are_there(dg_cuda *cu)
{
    if (cu->error || cu->replay || cu->batch->watched || cu->batch->given)
        return;
    if (!cu->capture) {
        mark_found(cu);
        return;
    }
    end_capture(cu, &graph_for(cu, &cu->shape)->exec);
    if (!cu->error)
        begin_capture(cu);
}

static void hand_out(dg_cuda *cu, int n)
{
    const dg_findings *out = &cu->batch->out;
    const dg_cuda_findings *from = &cu->found;
    size_t rows = (size_t)n;
    cu->n_gathered = 0;
    for (int i = 0; i < n; i++)
        cu->n_gathered += from->gathered[i] > 0;
    if (!out->entropy)
        return;
    memcpy(out->entropy, from->entropy, rows * sizeof *out->entropy);
    memcpy(out->argmax, from->argmax, rows * sizeof *out->argmax);
    memcpy(out->drawn, from->drawn, rows * sizeof *out->drawn);
    dg_cuda_answers_hand_out(cu);
    if (!out->logprob)
        return;
    memcpy(out->logprob, from->logprob, rows * sizeof *out->logprob);
    for (size_t i = 0; i < rows * DG_MAX_TOP; i++) {
        size_t at = i / DG_MAX_TOP * DG_CUDA_MAX_TOP + i % DG_MAX_TOP;
        out->top_id[i] = from->top_id[at];
        out->top_logprob[i] = from->top_logprob[at];
    }
}

static void launch_graphs(dg_cuda *cu)
{
    const dg_cuda_graph *g = graph_for(cu, &cu->shape);
    record_begin(cu);
    dg_cuda_failed(cu, cudaGraphLaunch(g->exec, cu->stream), "a pass");
    if (!g->rest || cu->error)
        return;
    mark_found(cu);
    dg_cuda_failed(cu, cudaGraphLaunch(g->rest, cu->stream), "the soft embedding");
}

static double seconds_between(dg_cuda *cu, cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0;
    dg_cuda_failed(cu, cudaEventElapsedTime(&ms, from, to), "a pass");
    return 1e-3 * (double)ms;
}

/* Of the pass up to its results, and of what the one before did behind its own. */
static double device_seconds(dg_cuda *cu)
{
    const dg_cuda_marks *now = marks_of(cu);
    dg_cuda_marks *last = &cu->marks[cu->turn ^ 1];
    double seconds = seconds_between(cu, now->from, now->rest ? now->found : now->to);
    if (last->rest)
        seconds += seconds_between(cu, last->found, last->to);
    last->rest = false;
    return seconds;
}

/* Waits for the pass, whatever became of it. */
static void wait_for_pass(dg_cuda *cu)
{
    dg_cuda_marks *m = marks_of(cu);
    if (!cu->error)
        dg_cuda_failed(cu, cudaEventRecord(m->to, cu->stream), "a pass");
    if (!cu->error && !m->rest && cu->batch && cu->batch->n_row > cu->batch->n_encode)
        fetch_answers(cu, cu->stream);
    if (!cu->error && cu->batch && cu->batch->meanwhile)
        cu->batch->meanwhile(cu->batch->meanwhile_arg);
    cudaError_t error = !cu->error && m->rest
                            ? cudaEventSynchronize(cu->answer_bytes ? cu->fetched : m->found)
                            : cudaStreamSynchronize(cu->stream);
    dg_cuda_failed(cu, error, "a pass");
    cu->device_seconds = cu->error ? 0 : device_seconds(cu);
    if (cu->error)
        m->rest = false;
}

/* After a pass that failed. Most errors are of one call; some stay until the process ends. */
static void look_for_loss(dg_cuda *cu)
{
    cudaGetLastError();
    int error = cudaStreamSynchronize(cu->stream), aside = cudaStreamSynchronize(cu->side);
    error = error ? error : aside;
    if (error)
        atomic_store(&cu->lost, error);
}

dgemma_status dg_cuda_lost(const dg_backend *be, dgemma_error *err)
{
    int error = atomic_load(&((const dg_cuda *)be)->lost);
    return error ? dg_fail(err, DGEMMA_E_INTERNAL,
                           "the device is lost (%s): dgemma has to be started again",
                           cudaGetErrorString((cudaError_t)error))
                 : DGEMMA_OK;
}

double dg_cuda_device_seconds(dg_backend *be)
{
    return dg_cuda_of(be)->device_seconds;
}

int dg_cuda_gathered(dg_backend *be)
{
    return dg_cuda_of(be)->n_gathered;
}

dgemma_status dg_cuda_finish(dg_backend *be, dgemma_error *err)
{
    dg_cuda *cu = dg_cuda_of(be);
    int n = cu->batch ? cu->batch->n_row - cu->batch->n_encode : 0;
    if (cu->capture) {
        dg_cuda_graph *g = graph_for(cu, &cu->shape);
        end_capture(cu, g->exec ? &g->rest : &g->exec);
    }
    if (!cu->error && (cu->capture || cu->replay))
        launch_graphs(cu);
    wait_for_pass(cu);
    if (!cu->error && n > 0)
        hand_out(cu, n);
    cu->batch = NULL;
    cu->replay = cu->capture = false;
    if (!cu->error)
        return DGEMMA_OK;
    cudaError_t error = cu->error;
    cu->error = cudaSuccess;
    look_for_loss(cu);
    dg_cuda_graphs_drop(cu);
    return dg_fail(err, error == cudaErrorMemoryAllocation ? DGEMMA_E_NOMEM : DGEMMA_E_INTERNAL,
                   "the device failed in %s: %s", cu->where, cudaGetErrorString(error));
}
