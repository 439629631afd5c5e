/* Times the experts and the dense products of the CUDA backend with many rows: several canvases in a step, the chunks of a
 * prompt.
 *
 *   make CUDA=1 build/release/bench_cuda_many && build/release/bench_cuda_many [REPETITIONS [experts | ROWS]]
 *
 * Weights are bfloat16, each layer's of its own. The experts' bits are compared over REPETITIONS runs (200). `experts`: no
 * dense products. With ROWS only the experts run once with so many, to be looked at by a profiler. */
#include "bench_cuda.cuh"
#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_product.cuh"

enum { MAX_ROWS = 4096, N_EXPERT = 128, N_USED = 8, N_EMBD = 2816, N_FF = 704, N_LAYER = 3 };

static unsigned char *pool; /* packed weights of all layers */
static size_t mat_bytes;    /* of all experts' gate, up or down */
static uint16_t *x_rows, *h_rows;
static float *out_rows;

/* ---- experts ---- */

typedef struct expert_job {
    int n_row;
    int32_t *expert;
    float *weight;
    void *scratch;
} expert_job;

static void enqueue_experts(cudaStream_t stream, void *arg, int layer)
{
    expert_job *job = (expert_job *)arg;
    unsigned char *at = pool + (size_t)layer * 3 * mat_bytes;
    dg_cuda_matrix gate = {DG_BF16, N_EXPERT, N_FF, N_EMBD, at, NULL, false}, up = gate, down = {DG_BF16, N_EXPERT, N_EMBD, N_FF, NULL, NULL, false};
    up.data = at + mat_bytes;
    down.data = at + 2 * mat_bytes;
    dg_cuda_experts_args a = {job->n_row,   N_USED, {DG_CUDA_BF16, x_rows, N_EMBD}, job->expert, job->weight, &gate, &up, &down, out_rows, N_EMBD,
                              job->scratch};
    check(dg_cuda_experts(stream, &a), "experts");
}

/* Distinct experts for each row; with skew the busiest has four times the mean. Returns the most that one has. */
static int make_routes(int32_t *expert, int n_row, bool skew)
{
    uint64_t seed = 99;
    int load[N_EXPERT] = {}, most = 0;
    double sum[N_EXPERT + 1] = {};
    for (int e = 0; e < N_EXPERT; e++)
        sum[e + 1] = sum[e] + (skew ? exp(-0.035 * e) * 6 + 0.35 : 1);
    for (int r = 0; r < n_row; r++)
        for (int j = 0; j < N_USED; j++) {
            int32_t *mine = expert + r * N_USED;
            bool taken;
            do {
                double u = mixed(seed++) / 4294967296.0 * sum[N_EXPERT];
                for (mine[j] = 0; mine[j] < N_EXPERT - 1 && sum[mine[j] + 1] <= u; mine[j]++)
                    ;
                taken = false;
                for (int i = 0; i < j; i++)
                    taken |= mine[i] == mine[j];
            } while (taken);
            most = ++load[mine[j]] > most ? load[mine[j]] : most;
        }
    return most;
}

static unsigned differences(const void *a, const void *b, size_t n)
{
    unsigned *count = (unsigned *)device_memory(4), n_different;
    count_differences<<<264, 256>>>((const uint32_t *)a, (const uint32_t *)b, n, count);
    check(cudaMemcpy(&n_different, count, 4, cudaMemcpyDeviceToHost), "compare");
    cudaFree(count);
    return n_different;
}

/* The first 200 rows alone, which are streamed, and many times over. */
static void compare_bits(const expert_job *job, int n_run)
{
    size_t n = (size_t)job->n_row * N_EMBD, few = 200 * (size_t)N_EMBD;
    void *first = device_memory(n * 4);
    expert_job alone = *job;
    unsigned wrong = 0;
    enqueue_experts(0, &alone, 0);
    check(cudaMemcpy(first, out_rows, n * 4, cudaMemcpyDeviceToDevice), "copy");
    alone.n_row = 200;
    enqueue_experts(0, &alone, 0);
    printf("  %u values of 200 rows alone differ", differences(first, out_rows, few));
    alone.n_row = job->n_row;
    for (int i = 0; i < n_run; i++) {
        check(cudaMemset(out_rows, 0xFF, n * 4), "clear");
        enqueue_experts(0, &alone, 0);
        wrong += differences(first, out_rows, n) != 0;
    }
    printf(", %u of %d runs\n", wrong, n_run);
    cudaFree(first);
}

/* ---- the experts launch by launch, as they are for warpgroups ---- */

typedef struct part_job {
    dg_sort_job sort;
    dg_stream_job stream;
    dg_combine_job combine;
    int32_t *counter;
} part_job;

static void enqueue_sort(cudaStream_t stream, void *arg, int layer)
{
    dg_byte_rows none = {};
    check(dg_sort_pairs(stream, &((part_job *)arg)->sort, &none), "sort");
    (void)layer;
}

static void enqueue_combine(cudaStream_t stream, void *arg, int layer)
{
    check(dg_combine(stream, &((part_job *)arg)->combine), "combine");
    (void)layer;
}

/* A counter for each layer, as a launch leaves it used up. */
static void enqueue_groups(cudaStream_t stream, void *arg, int layer)
{
    part_job *job = (part_job *)arg;
    dg_stream_job s = job->stream;
    s.w[0] += (size_t)layer * 3 * mat_bytes;
    s.w[1] += (size_t)layer * 3 * mat_bytes;
    s.next = job->counter + layer;
    if (layer == 0)
        check(cudaMemsetAsync(job->counter, 0, N_LAYER * 4, stream), "counters");
    check(dg_expert_groups(stream, &s, DG_BF16), "groups");
}

static void set_weights(dg_stream_job *s, const dg_sort_job *sort, int n_out, int n_in, const unsigned char *w, const unsigned char *other)
{
    s->n_expert = N_EXPERT;
    s->n_pair = sort->n_pair;
    s->piece_rows = DG_GROUP_ROWS;
    s->piece = sort->piece;
    s->n_piece = sort->n_piece;
    s->mat_bytes = dg_cuda_pack_bytes(DG_BF16, n_out, n_in);
    s->tiles = group_tiles(n_out);
    s->n_group = group_count(n_out);
    s->n_unit = n_in / 64;
    s->w[0] = w;
    s->w[1] = other;
    s->factor = 1;
}

static void parts(const expert_job *of)
{
    part_job job = {};
    int n_pair = of->n_row * N_USED;
    double us[4];
    job.sort = {of->expert, n_pair, N_USED, N_EXPERT, DG_GROUP_ROWS};
    job.sort.start = (int32_t *)device_memory((N_EXPERT + 1) * 4);
    job.sort.row = (int32_t *)device_memory((size_t)n_pair * 4);
    job.sort.place = (int32_t *)device_memory((size_t)n_pair * 4);
    job.sort.piece = (dg_expert_piece *)device_memory((size_t)dg_most_pieces(n_pair, N_EXPERT) * sizeof(dg_expert_piece));
    job.sort.done = (uint32_t *)device_memory((size_t)dg_most_pieces(n_pair, N_EXPERT) * 4);
    job.sort.n_piece = (int32_t *)device_memory(4);
    job.sort.counter = (int32_t *)device_memory(DG_PIECE_COUNTERS * 4);
    job.sort.n_tile = dg_most_tiles(n_pair, N_EXPERT);
    job.sort.tile = (dg_expert_tile *)device_memory((size_t)job.sort.n_tile * sizeof(dg_expert_tile));
    job.counter = (int32_t *)device_memory(N_LAYER * 4);
    us[0] = time_layers(enqueue_sort, &job, N_LAYER);
    set_weights(&job.stream, &job.sort, N_FF, N_EMBD, pool, pool + mat_bytes);
    job.stream.row = job.sort.row;
    job.stream.x = (const unsigned char *)x_rows;
    job.stream.x_bytes = N_EMBD * 2;
    job.stream.out = {DG_CUDA_BF16, h_rows, N_FF};
    us[1] = time_layers(enqueue_groups, &job, N_LAYER);
    job.stream.read_once = true;
    printf("  read once: gate+up %.1f", time_layers(enqueue_groups, &job, N_LAYER));
    job.stream.read_once = false;
    set_weights(&job.stream, &job.sort, N_EMBD, N_FF, pool + 2 * mat_bytes, pool + 2 * mat_bytes);
    job.stream.row = NULL;
    job.stream.x = (const unsigned char *)h_rows;
    job.stream.x_bytes = N_FF * 2;
    job.stream.down = true;
    job.stream.out = {DG_CUDA_BF16, out_rows, N_EMBD};
    us[2] = time_layers(enqueue_groups, &job, N_LAYER);
    job.stream.read_once = true;
    printf(", down %.1f\n", time_layers(enqueue_groups, &job, N_LAYER));
    job.combine = {job.stream.out, job.sort.place, of->weight, out_rows, N_EMBD, of->n_row, N_USED, N_EMBD};
    us[3] = time_layers(enqueue_combine, &job, N_LAYER);
    printf("  sort %.1f us, gate+up %.1f, down %.1f, combine %.1f\n", us[0], us[1], us[2], us[3]);
    cudaFree(job.sort.start);
    cudaFree(job.sort.row);
    cudaFree(job.sort.place);
    cudaFree(job.sort.piece);
    cudaFree(job.sort.n_piece);
    cudaFree(job.sort.done);
    cudaFree(job.sort.counter);
    cudaFree(job.sort.tile);
    cudaFree(job.counter);
}

/* once: not timed. */
static void experts(int n_row, bool skew, int n_run, bool once)
{
    expert_job job = {n_row, (int32_t *)device_memory(MAX_ROWS * N_USED * 4), (float *)device_memory(MAX_ROWS * N_USED * 4),
                      device_memory(dg_cuda_experts_bytes(MAX_ROWS, N_USED, N_EXPERT, N_EMBD, N_FF))};
    int32_t *expert = (int32_t *)host_memory(MAX_ROWS * N_USED * 4);
    float *weight = (float *)host_memory(MAX_ROWS * N_USED * 4);
    int most = make_routes(expert, n_row, skew);
    for (int i = 0; i < n_row * N_USED; i++)
        weight[i] = 0.05f + (float)(mixed((uint64_t)i) & 255) / 1024;
    check(cudaMemcpy(job.expert, expert, (size_t)n_row * N_USED * 4, cudaMemcpyHostToDevice), "copy");
    check(cudaMemcpy(job.weight, weight, (size_t)n_row * N_USED * 4, cudaMemcpyHostToDevice), "copy");
    if (once) {
        enqueue_experts(0, &job, 0);
        check(cudaDeviceSynchronize(), "experts");
        exit(0);
    }
    double us = time_layers(enqueue_experts, &job, N_LAYER), flop = 6.0 * n_row * N_USED * N_FF * N_EMBD;
    printf("experts, busiest %3d     %4d rows %8.1f us, %4.0f TFLOP/s, %4.0f GB/s\n", most, n_row, us, flop / us * 1e-6, 3 * (double)mat_bytes / us * 1e-3);
    if (n_row >= 512)
        parts(&job);
    if (n_run)
        compare_bits(&job, n_run);
    fflush(stdout);
    cudaFree(job.expert);
    cudaFree(job.weight);
    cudaFree(job.scratch);
    free(expert);
    free(weight);
}

/* ---- dense products ---- */

typedef struct dense_job {
    int n_row, n_out, n_in;
    bool gated;
    dg_slab_tile tile;
} dense_job;

static void enqueue_dense(cudaStream_t stream, void *arg, int layer)
{
    dense_job *job = (dense_job *)arg;
    size_t bytes = dg_cuda_slab_bytes(job->n_out, job->n_in);
    dg_cuda_matrix w = {DG_BF16, 1, job->n_out, job->n_in, pool + (size_t)layer * 2 * bytes, NULL, true}, up = w;
    up.data = pool + ((size_t)layer * 2 + 1) * bytes;
    dg_cuda_rows x = {DG_CUDA_BF16, x_rows, job->n_in}, h = {DG_CUDA_BF16, h_rows, dg_cuda_ld(job->n_out)};
    dg_cuda_gated_args gated = {job->n_row, x, &w, &up, h};
    dg_cuda_product_args product = {job->n_row, x, 1, 1, {{&w, out_rows, (size_t)job->n_out}}};
    check(job->gated ? dg_cuda_gated_slabs(stream, &gated, job->tile) : dg_cuda_product_slabs(stream, &product, job->tile), "product");
}

static void dense(const char *name, int n_row, int n_out, int n_in, bool gated)
{
    dense_job job = {n_row, n_out, n_in, gated, DG_SLAB_BEST};
    double us = time_layers(enqueue_dense, &job, N_LAYER), flop = 2.0 * n_row * n_out * n_in * (gated ? 2 : 1);
    printf("%-24s %4d rows %8.1f us, %4.0f TFLOP/s; tiles", name, n_row, us, flop / us * 1e-6);
    for (int tile = 0; tile < DG_SLAB_TILES; tile++) {
        job.tile = (dg_slab_tile)tile;
        if (gated && (tile == DG_SLAB_128X192 || tile > DG_SLAB_64X128)) {
            printf(" -"); /* not whole slabs of gate and up */
            continue;
        }
        printf(" %.1f", time_layers(enqueue_dense, &job, N_LAYER));
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int rows[] = {256, 512, 1024, 2048, 4096};
    int n_run = argc > 1 ? atoi(argv[1]) : 200;
    size_t bytes;
    mat_bytes = N_EXPERT * dg_cuda_pack_bytes(DG_BF16, N_FF, N_EMBD);
    bytes = (size_t)N_LAYER * 3 * mat_bytes;
    pool = (unsigned char *)device_memory(bytes);
    fill_values<<<2048, 256>>>((uint16_t *)pool, bytes / 2, false, 0.02f, 7);
    x_rows = (uint16_t *)device_memory((size_t)MAX_ROWS * 8192 * 2);
    h_rows = (uint16_t *)device_memory((size_t)MAX_ROWS * 8192 * 2);
    out_rows = (float *)device_memory((size_t)MAX_ROWS * 16384 * 4);
    fill_values<<<1024, 256>>>(x_rows, (size_t)MAX_ROWS * 8192, false, 1, 3);
    if (argc > 2 && strcmp(argv[2], "experts") != 0)
        experts(atoi(argv[2]), false, 0, true);
    for (int i = 0; i < 5; i++)
        experts(rows[i], false, i == 2 || i == 4 ? n_run : 0, false);
    experts(1024, true, 0, false);
    if (argc > 2)
        return 0;
    for (int i = 2; i < 5; i += 2) {
        dense("q+k+v sliding", rows[i], 8192, N_EMBD, false);
        dense("o sliding", rows[i], N_EMBD, 4096, false);
        dense("q+k global", rows[i], 9216, N_EMBD, false);
        dense("o global", rows[i], N_EMBD, 8192, false);
        dense("gate+up dense", rows[i], 2112, N_EMBD, true);
        dense("down dense", rows[i], N_EMBD, 2112, false);
    }
    return 0;
}
