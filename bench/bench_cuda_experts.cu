/* Times the experts of the CUDA backend on the shapes of the model, whole and launch by launch, against floors measured in
 * the same run.
 *
 *   make CUDA=1 build/release/bench_cuda_experts && build/release/bench_cuda_experts [REPETITIONS]
 *
 * Each figure is the median of replays of a graph of several layers with weights of their own, 3 GB together, so that
 * none come from a cache. floor: the time in which a kernel that only reads takes the same bytes in; eta: floor / time.
 * Results of a row are compared with sums in double on the host, and the bits of all over thousands of runs. */
#include "bench_cuda.cuh"
#include "cuda/cuda_stream.cuh"
#include "cuda/cuda_stream_lean.cuh"

/* ---- experts ---- */

enum { MAX_ROWS = 2048, POOL_GB = 4 };

static unsigned char *pool;   /* packed weights of all layers */
static unsigned char *stored; /* of one */
static float *out_rows;
static uint32_t *sink;
static uint16_t *x_rows[2]; /* bfloat16, half */
static void *h_rows, *result_rows, *byte_rows, *byte_blocks;

static dg_cuda_rows rows_of(dg_dtype type, int n)
{
    dg_cuda_form form = dg_cuda_form_of(type);
    return {form, x_rows[form == DG_CUDA_F16], dg_cuda_ld(n)};
}

enum { N_EXPERT = 128, N_USED = 8, N_EMBD = 2816, N_FF = 704 };

typedef struct expert_job {
    dg_dtype type, down;
    int n_row;
    size_t gate_at, up_at, down_at, layer_bytes;
    int32_t *expert;
    float *weight;
    void *scratch;
} expert_job;

static void enqueue_experts(cudaStream_t stream, void *arg, int layer)
{
    expert_job *job = (expert_job *)arg;
    unsigned char *at = pool + (size_t)layer * job->layer_bytes;
    dg_cuda_matrix gate = {job->type, N_EXPERT, N_FF, N_EMBD, at + job->gate_at, NULL};
    dg_cuda_matrix up = {job->type, N_EXPERT, N_FF, N_EMBD, at + job->up_at, NULL};
    dg_cuda_matrix down = {job->down, N_EXPERT, N_EMBD, N_FF, at + job->down_at, NULL};
    dg_cuda_experts_args a = {job->n_row, N_USED,   rows_of(job->type, N_EMBD), job->expert, job->weight, &gate, &up,
                              &down,      out_rows, N_EMBD,                     job->scratch};
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
            int32_t e;
            bool taken;
            do {
                double u = mixed(seed++) / 4294967296.0 * sum[N_EXPERT];
                for (e = 0; e < N_EXPERT - 1 && sum[e + 1] <= u; e++)
                    ;
                taken = false;
                for (int i = 0; i < j; i++)
                    taken |= expert[r * N_USED + i] == e;
            } while (taken);
            expert[r * N_USED + j] = e;
            most = ++load[e] > most ? load[e] : most;
        }
    return most;
}

static void stress(expert_job *job, int n_run)
{
    size_t n = (size_t)job->n_row * N_EMBD;
    uint32_t *first = (uint32_t *)device_memory(n * 4);
    unsigned *count = (unsigned *)device_memory(4), before = 0, wrong = 0;
    enqueue_experts(0, job, 0);
    check(cudaMemcpy(first, out_rows, n * 4, cudaMemcpyDeviceToDevice), "copy");
    for (int i = 0; i < n_run; i++) {
        unsigned now;
        check(cudaMemsetAsync(out_rows, 0xFF, n * 4, 0), "clear");
        enqueue_experts(0, job, 0);
        count_differences<<<264, 256>>>(first, (const uint32_t *)out_rows, n, count);
        if (i % 50 == 49 || i == n_run - 1) {
            check(cudaMemcpy(&now, count, 4, cudaMemcpyDeviceToHost), "stress");
            wrong += now != before;
            before = now;
        }
    }
    printf("  %s + %s: %d runs, %u values differ, in %u groups of 50\n", dg_dtype_name(job->type), dg_dtype_name(job->down), n_run,
           before, wrong);
    cudaFree(first);
    cudaFree(count);
}

/* One row against sums in double; h is rounded as the kernels round it only in its size. */
static double experts_error(const expert_job *job, const int32_t *expert, const float *weight, int row)
{
    size_t gate_row = dg_dtype_bytes(job->type, N_EMBD), down_row = dg_dtype_bytes(job->down, N_FF);
    unsigned char *gate = (unsigned char *)host_memory(gate_row * N_FF), *down = (unsigned char *)host_memory(down_row * 64);
    float *w = (float *)host_memory(N_EMBD * sizeof *w), *x = (float *)host_memory(N_EMBD * sizeof *x), *got = (float *)host_memory(64 * 4);
    double want[64] = {}, worst = 0, largest = 1e-30;
    dg_cuda_form form = dg_cuda_form_of(job->type);
    uint16_t *bits = (uint16_t *)host_memory(N_EMBD * 2);
    check(cudaMemcpy(bits, x_rows[form == DG_CUDA_F16] + (size_t)row * N_EMBD, N_EMBD * 2, cudaMemcpyDeviceToHost), "x");
    dg_widen(x, bits, form == DG_CUDA_F16 ? DG_F16 : DG_BF16, N_EMBD);
    for (int j = 0; j < N_USED; j++) {
        double h[N_FF];
        size_t e = (size_t)expert[row * N_USED + j];
        check(cudaMemcpy(gate, stored + e * gate_row * N_FF, gate_row * N_FF, cudaMemcpyDeviceToHost), "gate");
        for (int i = 0; i < N_FF; i++) {
            double g = 0;
            dg_widen(w, gate + (size_t)i * gate_row, job->type, N_EMBD);
            for (int k = 0; k < N_EMBD; k++)
                g += (double)w[k] * x[k];
            h[i] = 0.5 * g * (1 + tanh(0.7978845608 * (g + 0.044715 * g * g * g))) * g; /* up is gate here */
        }
        size_t at = (size_t)N_EXPERT * gate_row * N_FF;
        check(cudaMemcpy(down, stored + at + e * down_row * N_EMBD, down_row * 64, cudaMemcpyDeviceToHost), "down");
        for (int o = 0; o < 64; o++) {
            double sum = 0;
            dg_widen(w, down + (size_t)o * down_row, job->down, N_FF);
            for (int k = 0; k < N_FF; k++)
                sum += (double)w[k] * h[k];
            want[o] += weight[row * N_USED + j] * sum;
        }
    }
    check(cudaMemcpy(got, out_rows + (size_t)row * N_EMBD, 64 * 4, cudaMemcpyDeviceToHost), "y");
    for (int o = 0; o < 64; o++) {
        double error = fabs(got[o] - want[o]);
        worst = error > worst || !(error == error) ? error : worst;
        largest = fabs(want[o]) > largest ? fabs(want[o]) : largest;
    }
    free(gate);
    free(down);
    free(w);
    free(x);
    free(got);
    free(bits);
    return worst / largest;
}

/* ---- launch by launch ---- */

typedef struct part_job {
    const expert_job *all;
    dg_sort_job sort;
    dg_byte_rows bytes;
    dg_byte_blocks blocks; /* out NULL: down takes halves */
    dg_stream_job stream;
    dg_dtype type;
    int n_in;
    dg_combine_job combine;
    int candidate;
    int32_t *counter;
} part_job;

static void enqueue_sort(cudaStream_t stream, void *arg, int layer)
{
    check(dg_sort_pairs(stream, &((part_job *)arg)->sort, &((part_job *)arg)->bytes), "sort");
    (void)layer;
}

static void enqueue_narrow(cudaStream_t stream, void *arg, int layer)
{
    check(dg_narrow_blocks(stream, &((part_job *)arg)->blocks), "narrow");
    (void)layer;
}

static void enqueue_combine(cudaStream_t stream, void *arg, int layer)
{
    check(dg_combine(stream, &((part_job *)arg)->combine), "combine");
    (void)layer;
}

/* The launch with something left out: where the time goes. */
enum { AS_IT_IS, WITHOUT_PRODUCTS, WITHOUT_STORES, WITHOUT_BOTH, N_CANDIDATE };
static const char *const candidate_name[] = {"as it is", "without products", "without stores", "without both"};

template <class F> struct no_products : F {};
template <class F> struct stream_stage<no_products<F>> : stream_stage<F> {};
template <class F> struct stream_row<no_products<F>> : stream_row<F> {
    static constexpr bool IS_BYTES = true;
};
template <class F, int NT_MAX, int NT> struct byte_units<no_products<F>, NT_MAX, NT> {
    static __device__ __forceinline__ void multiply(float (*)[NT][4], const unsigned char *const *, const unsigned char *, int, int) {}
};

/* One warp copies weights and gathers rows, or warps of their own. */
template <class F, bool DOWN> static cudaError_t stream_form(cudaStream_t stream, const dg_stream_job &job, bool one_warp)
{
    return one_warp ? lean::launch_stream<F, DOWN, 4>(stream, job) : launch_half<F, DOWN, 4>(stream, job);
}

template <class F, bool DOWN> static cudaError_t stream_part(cudaStream_t stream, dg_stream_job job, int n_in, int candidate)
{
    bool one_warp = stream_row<F>::IS_BYTES && !(DOWN && F::BLOCK == DG_INT4_VALUES);
    job.n_unit = (n_in + F::UNIT - 1) / F::UNIT;
    if (candidate == WITHOUT_STORES || candidate == WITHOUT_BOTH)
        job.out.ld = 0;
    if (candidate == WITHOUT_PRODUCTS || candidate == WITHOUT_BOTH)
        return stream_form<no_products<F>, DOWN>(stream, job, one_warp);
    return stream_form<F, DOWN>(stream, job, one_warp);
}

template <bool DOWN> static cudaError_t stream_type(cudaStream_t stream, const dg_stream_job &s, const part_job *job)
{
    int n_in = job->n_in, candidate = job->candidate;
    switch (job->type) {
    case DG_BF16:
        return stream_part<format_bf16, DOWN>(stream, s, n_in, candidate);
    case DG_Q8_0:
        return stream_part<format_q8_0, DOWN>(stream, s, n_in, candidate);
    case DG_FP8:
        return stream_part<format_fp8, DOWN>(stream, s, n_in, candidate);
    case DG_INT4:
        return stream_part<format_int4, DOWN>(stream, s, n_in, candidate);
    default:
        if constexpr (DOWN)
            return stream_part<format_q5_0_bytes, DOWN>(stream, s, n_in, candidate);
        else
            return stream_part<format_q4_k_bytes, DOWN>(stream, s, n_in, candidate);
    }
}

static void enqueue_stream(cudaStream_t stream, void *arg, int layer)
{
    part_job *job = (part_job *)arg;
    dg_stream_job s = job->stream;
    size_t at = (size_t)layer * job->all->layer_bytes;
    s.w[0] += at;
    s.w[1] += at;
    s.next = job->counter + layer;
    if (layer == 0)
        check(cudaMemsetAsync(job->counter, 0, 64 * 4, stream), "counters");
    check(s.down ? stream_type<true>(stream, s, job) : stream_type<false>(stream, s, job), s.down ? "down" : "gate and up");
}

/* Types whose launches are timed one by one. */
static bool with_parts(const expert_job *job)
{
    return job->type != DG_Q6_K && job->type != DG_Q4_0;
}

static dg_stream_job stream_of(const part_job *job, dg_dtype type, int n_out, int n_in, bool down)
{
    dg_stream_job s = {};
    s.n_expert = N_EXPERT;
    s.n_pair = job->sort.n_pair;
    s.piece = job->sort.piece;
    s.n_piece = job->sort.n_piece;
    s.mat_bytes = down ? dg_cuda_pack_bytes(type, n_out, n_in) : dg_cuda_pack_gated_bytes(type, n_out, n_in);
    s.tiles = group_tiles(n_out);
    s.n_group = group_count(n_out);
    s.factor = 1;
    s.down = down;
    return s;
}

static void candidates(part_job *job, int n_layer, const char *what)
{
    printf("  %s %s:", what, dg_dtype_name(job->type));
    for (job->candidate = 0; job->candidate < N_CANDIDATE; job->candidate++)
        printf(" %s %.1f us%s", candidate_name[job->candidate], time_layers(enqueue_stream, job, n_layer), job->candidate == N_CANDIDATE - 1 ? "\n" : ",");
    job->candidate = AS_IT_IS;
}

static void parts(const expert_job *all, int n_layer, const char *name)
{
    part_job job = {};
    int n_pair = all->n_row * N_USED;
    double us[5] = {}, floor_us[2];
    job.all = all;
    job.sort.expert = all->expert;
    job.sort.n_pair = n_pair;
    job.sort.n_used = N_USED;
    job.sort.n_expert = N_EXPERT;
    job.sort.piece_rows = DG_PIECE_ROWS;
    job.sort.start = (int32_t *)device_memory((N_EXPERT + 1) * 4);
    job.sort.row = (int32_t *)device_memory((size_t)n_pair * 4);
    job.sort.place = (int32_t *)device_memory((size_t)n_pair * 4);
    job.sort.piece = (dg_expert_piece *)device_memory((size_t)dg_most_pieces(n_pair, N_EXPERT) * sizeof(dg_expert_piece));
    job.sort.n_piece = (int32_t *)device_memory(4);
    job.sort.counter = (int32_t *)device_memory(DG_PIECE_COUNTERS * 4);
    job.sort.done = (uint32_t *)device_memory((size_t)dg_most_pieces(n_pair, N_EXPERT) * 4);
    job.counter = (int32_t *)device_memory(64 * 4);
    job.sort.n_tile = dg_most_tiles(n_pair, N_EXPERT);
    job.sort.tile = (dg_expert_tile *)device_memory((size_t)job.sort.n_tile * sizeof(dg_expert_tile));
    if (all->type == DG_INT4)
        job.sort.groups = {x_rows[1], all->n_row, N_EMBD, true, (unsigned char *)byte_rows};
    if (all->type == DG_Q4_K)
        job.bytes = {x_rows[1], all->n_row, N_EMBD, N_EMBD / 256, (unsigned char *)byte_rows};
    us[0] = time_layers(enqueue_sort, &job, n_layer);

    dg_cuda_form form = dg_cuda_form_of(all->down);
    dg_cuda_rows x = rows_of(all->type, N_EMBD), h = {form, h_rows, dg_cuda_ld(N_FF)}, result = {DG_CUDA_BF16, result_rows, N_EMBD};
    job.stream = stream_of(&job, all->type, N_FF, N_EMBD, false);
    job.stream.row = job.sort.row;
    job.stream.x = (const unsigned char *)x.data;
    job.stream.x_bytes = (size_t)x.ld * 2;
    if (job.bytes.out) {
        job.stream.x = job.bytes.out;
        job.stream.x_bytes = N_EMBD / 256 * BYTE_UNIT;
    }
    if (job.sort.groups.out) {
        job.stream.x = job.sort.groups.out;
        job.stream.x_bytes = N_EMBD / 64 * BLOCKS_UNIT;
    }
    job.stream.w[0] = pool + all->gate_at;
    job.stream.w[1] = pool + all->up_at;
    job.stream.out = h;
    job.type = all->type;
    job.n_in = N_EMBD;
    us[1] = time_layers(enqueue_stream, &job, n_layer);
    candidates(&job, n_layer, "gate+up");

    job.stream = stream_of(&job, all->down, N_EMBD, N_FF, true);
    job.stream.x = (const unsigned char *)h.data;
    job.stream.x_bytes = (size_t)h.ld * 2;
    if (all->down == DG_Q5_0 || all->down == DG_INT4) {
        job.blocks = {(const uint16_t *)h.data, n_pair, h.ld, all->down == DG_INT4, (unsigned char *)byte_blocks};
        us[4] = time_layers(enqueue_narrow, &job, n_layer);
        job.stream.x = job.blocks.out;
        job.stream.x_bytes = N_FF / 64 * BLOCKS_UNIT;
    }
    job.stream.w[0] = job.stream.w[1] = pool + all->down_at;
    job.stream.out = result;
    job.type = all->down;
    job.n_in = N_FF;
    us[2] = time_layers(enqueue_stream, &job, n_layer);
    candidates(&job, n_layer, "down");

    job.combine = {result, job.sort.place, all->weight, out_rows, N_EMBD, all->n_row, N_USED, N_EMBD};
    us[3] = time_layers(enqueue_combine, &job, n_layer);
    floor_job least = {pool, 2 * N_EXPERT * dg_cuda_pack_gated_bytes(all->type, N_FF, N_EMBD), sink};
    floor_us[0] = time_layers(enqueue_floor, &least, n_layer);
    least.bytes = N_EXPERT * dg_cuda_pack_bytes(all->down, N_EMBD, N_FF);
    floor_us[1] = time_layers(enqueue_floor, &least, n_layer);
    printf("  %s: sort %.1f us, gate+up %.1f (floor %.1f, eta %.3f), bytes of h %.1f, down %.1f (floor %.1f, eta %.3f), combine %.1f\n", name, us[0], us[1],
           floor_us[0], floor_us[0] / us[1], us[4], us[2], floor_us[1], floor_us[1] / us[2], us[3]);
    cudaFree(job.sort.start);
    cudaFree(job.sort.row);
    cudaFree(job.sort.place);
    cudaFree(job.sort.piece);
    cudaFree(job.sort.n_piece);
    cudaFree(job.sort.counter);
    cudaFree(job.sort.tile);
    cudaFree(job.sort.done);
    cudaFree(job.counter);
}

static void experts(dg_dtype type, dg_dtype down, const int *n_row, int n_run, int n_stress)
{
    expert_job job = {};
    size_t gate_bytes = N_EXPERT * dg_cuda_pack_gated_bytes(type, N_FF, N_EMBD), down_bytes = N_EXPERT * dg_cuda_pack_bytes(down, N_EMBD, N_FF);
    size_t each = (size_t)N_FF * N_EMBD, gate_stored = dg_dtype_bytes(type, each), down_stored = dg_dtype_bytes(down, each);
    int32_t *expert = (int32_t *)host_memory(MAX_ROWS * N_USED * sizeof *expert);
    float *weight = (float *)host_memory(MAX_ROWS * N_USED * sizeof *weight);
    job.type = type;
    job.down = down;
    job.up_at = gate_bytes;
    job.down_at = 2 * gate_bytes;
    job.layer_bytes = 2 * gate_bytes + down_bytes;
    job.expert = (int32_t *)device_memory(MAX_ROWS * N_USED * sizeof *expert);
    job.weight = (float *)device_memory(MAX_ROWS * N_USED * sizeof *weight);
    job.scratch = device_memory(dg_cuda_experts_bytes(MAX_ROWS, N_USED, N_EXPERT, N_EMBD, N_FF));
    for (int i = 0; i < MAX_ROWS * N_USED; i++)
        weight[i] = 0.05f + (float)(mixed((uint64_t)i) & 255) / 1024;
    check(cudaMemcpy(job.weight, weight, MAX_ROWS * N_USED * sizeof *weight, cudaMemcpyHostToDevice), "copy");
    fill_stored(stored, type, N_EXPERT * each);
    fill_stored(stored + N_EXPERT * gate_stored, down, N_EXPERT * each);
    check(dg_cuda_pack_gated(0, pool, stored, gate_stored, type, N_EXPERT, N_FF, N_EMBD), "pack");
    check(dg_cuda_pack_gated(0, pool + job.up_at, stored, gate_stored, type, N_EXPERT, N_FF, N_EMBD), "pack");
    check(dg_cuda_pack_down(0, pool + job.down_at, stored + N_EXPERT * gate_stored, down_stored, down, N_EXPERT, N_EMBD, N_FF), "pack");
    int n_layer = (int)(((size_t)POOL_GB << 30) / job.layer_bytes);
    n_layer = n_layer > 8 ? 8 : n_layer;
    for (int l = 1; l < n_layer; l++)
        check(cudaMemcpy(pool + (size_t)l * job.layer_bytes, pool, job.layer_bytes, cudaMemcpyDeviceToDevice), "copy");
    floor_job least = {pool, job.layer_bytes, sink};
    double floor_us = time_layers(enqueue_floor, &least, n_layer);
    for (int i = 0; i < n_run; i++)
        for (int skew = 0; skew < (n_row[i] == 256 ? 2 : 1); skew++) {
            job.n_row = n_row[i];
            int most = make_routes(expert, n_row[i], skew);
            check(cudaMemcpy(job.expert, expert, (size_t)n_row[i] * N_USED * sizeof *expert, cudaMemcpyHostToDevice), "copy");
            enqueue_experts(0, &job, 0);
            check(cudaDeviceSynchronize(), "run");
            double error = experts_error(&job, expert, weight, n_row[i] / 2), us = time_layers(enqueue_experts, &job, n_layer);
            printf("| %s%s+%s, busiest %d | %4d | %8.1f | %5.0f | %5.0f | %7.1f | %.3f | %.1e |\n", skew ? "skewed " : "", dg_dtype_name(type),
                   dg_dtype_name(down), most, n_row[i], us, (double)job.layer_bytes / us * 1e-3, 6.0 * n_row[i] * N_USED * N_FF * N_EMBD / us * 1e-6,
                   floor_us, floor_us / us, error);
            fflush(stdout);
            if (n_row[i] == 256 && with_parts(&job))
                parts(&job, n_layer, skew ? "skewed" : "uniform");
            if (n_row[i] == 256 && n_stress)
                stress(&job, n_stress);
        }
    cudaFree(job.expert);
    cudaFree(job.weight);
    cudaFree(job.scratch);
    free(expert);
    free(weight);
}

int main(int argc, char **argv)
{
    static const int canvas[] = {256}, many[] = {1, 16, 64, 256, 1024, 2048};
    int n_stress = argc > 1 ? atoi(argv[1]) : 2000;
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "device");
    pool = (unsigned char *)device_memory((size_t)POOL_GB << 30);
    stored = (unsigned char *)device_memory((size_t)2 << 30);
    out_rows = (float *)device_memory((size_t)MAX_ROWS * N_EMBD * sizeof(float));
    h_rows = device_memory((size_t)MAX_ROWS * N_USED * N_FF * 2);
    result_rows = device_memory((size_t)MAX_ROWS * N_USED * N_EMBD * 2);
    byte_rows = device_memory((size_t)MAX_ROWS * (N_EMBD / 64) * BLOCKS_UNIT);
    byte_blocks = device_memory((size_t)MAX_ROWS * N_USED * (N_FF / 64) * BLOCKS_UNIT);
    sink = (uint32_t *)device_memory(64);
    for (int half = 0; half < 2; half++) {
        x_rows[half] = (uint16_t *)device_memory((size_t)MAX_ROWS * N_EMBD * 2);
        fill_values<<<1024, 256>>>(x_rows[half], (size_t)MAX_ROWS * N_EMBD, half, 1, 3);
    }
    printf("%s, %d multiprocessors\n\n| experts | rows | us | GB/s | TFLOP/s | floor us | eta | error |\n|---|---|---|---|---|---|---|---|\n",
           device.name, device.multiProcessorCount);
    experts(DG_INT4, DG_INT4, canvas, 1, n_stress);
    experts(DG_FP8, DG_FP8, canvas, 1, n_stress);
    experts(DG_Q4_K, DG_Q5_0, many, 6, n_stress);
    experts(DG_Q4_K, DG_Q8_0, canvas, 1, n_stress / 2);
    experts(DG_BF16, DG_BF16, many, 6, n_stress);
    experts(DG_Q8_0, DG_Q8_0, canvas, 1, n_stress / 2);
    experts(DG_Q6_K, DG_Q8_0, canvas, 1, 0);
    experts(DG_Q4_0, DG_Q4_0, canvas, 1, 0);
    return 0;
}
