/* Times forms of the experts with four-bit and E4M3 weights against each other, gate and up and
 * down apart, on the shapes of the model at 256 rows.
 *
 *   make CUDA=1 build/release/bench_cuda_narrow && build/release/bench_cuda_narrow */
#include "bench_cuda.cuh"
#include "cuda/cuda_stream.cuh"

enum { N_EXPERT = 128, N_USED = 8, N_EMBD = 2816, N_FF = 704, N_ROW = 256, N_PAIR = N_ROW * N_USED };

static unsigned char *pool, *stored;
static uint32_t *sink;
static void *x_rows, *x_bytes, *h_rows, *h_bytes, *result_rows;

/* Bytes of E4M3 that are numbers below 2; steps as bfloat16 of 0.004 to 0.012. */
static __global__ void clear_nans(unsigned char *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        out[i] &= 0x9F;
}

static __global__ void fill_steps(unsigned char *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t bits = __float_as_uint(0.004f + 0.008f * (float)(mixed(i) & 255) / 256) >> 16;
        out[i * 34] = (unsigned char)(bits & 255);
        out[i * 34 + 1] = (unsigned char)(bits >> 8);
    }
}

/* ---- forms of four bits ---- */

enum { OLD_LOOP, NEW_LOOP };

template <int LOOP_, int UNITS_, bool ONCE_ = false> struct int4_form : format_int4 {
    static constexpr int LOOP = LOOP_, UNITS = UNITS_;
    static constexpr bool ONCE = ONCE_;
};
template <int LOOP, int UNITS, bool ONCE> struct stream_row<int4_form<LOOP, UNITS, ONCE>> : stream_row<format_int4> {};
template <int LOOP, int U, bool ONCE> struct stream_stage<int4_form<LOOP, U, ONCE>> {
    static constexpr int UNITS = U, K16 = U * BLOCKS_UNIT / 16;
};
template <int LOOP, int U, bool ONCE> struct stream_once<int4_form<LOOP, U, ONCE>> {
    static constexpr bool VALUE = ONCE;
};
struct fp8_once : format_fp8 {};
template <> struct stream_once<fp8_once> {
    static constexpr bool VALUE = true;
};

template <int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_old(float acc[2][NT][4], const unsigned char *const unit[2],
                                                        const unsigned char *x)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t a[2][2][4], loaded = 0;
    float step[2][2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        uint4 q = *(const uint4 *)(unit[m] + lane * 16);
        uint32_t word[4] = {q.x, q.y, q.z, q.w};
        uint32_t steps = word_at(unit[m] + format_int4::STEPS + lane / 4 * 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[m][i / 2][i % 2 * 2] = word[i] << 4 & 0xF0F0F0F0u;
            a[m][i / 2][i % 2 * 2 + 1] = word[i] & 0xF0F0F0F0u;
        }
        step[m][0] = dg_bf16_low(steps);
        step[m][1] = dg_bf16_high(steps);
        loaded ^= q.w ^ steps;
    }
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t b[4];
        dg_ldmatrix_x4(b, x + (lane / 8 * NT_MAX + j) * 128 + lane % 8 * 16);
        const unsigned char *factor = x + (BLOCKS_FACTORS / 16 * NT_MAX + j) * 128 + lane % 4 * 32;
        float of[2] = {*(const float *)factor, *(const float *)(factor + 16)};
        loaded ^= b[3] ^ __float_as_uint(of[0]) ^ __float_as_uint(of[1]);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            int sum[4] = {INTEGER_BITS, INTEGER_BITS, INTEGER_BITS, INTEGER_BITS};
            dg_mma_s8(sum, a[m][0], b);
            dg_mma_s8(sum, a[m][1], b + 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[m][j][i] = fmaf(__int_as_float(sum[i]) - 12582912.0f, step[m][i / 2] * of[i % 2], acc[m][j][i]);
        }
    }
    return loaded;
}

template <int LOOP, int U, bool ONCE, int NT_MAX, int NT> struct byte_unit<int4_form<LOOP, U, ONCE>, NT_MAX, NT> {
    static __device__ __forceinline__ uint32_t multiply(float acc[2][NT][4], const unsigned char *const unit[2], const unsigned char *x)
    {
        return LOOP == OLD_LOOP ? multiply_old<NT_MAX, NT>(acc, unit, x) : multiply_int4<NT_MAX, NT>(acc, unit, x);
    }
};

/* ---- jobs ---- */

typedef cudaError_t form_fn(cudaStream_t stream, dg_stream_job job);

typedef struct part_job {
    dg_stream_job stream;
    size_t layer_bytes;
    int32_t *counter;
    form_fn *form;
} part_job;

static void enqueue_part(cudaStream_t stream, void *arg, int layer)
{
    part_job *job = (part_job *)arg;
    dg_stream_job s = job->stream;
    s.w[0] += (size_t)layer * job->layer_bytes;
    s.w[1] += (size_t)layer * job->layer_bytes;
    s.next = job->counter + layer;
    if (layer == 0)
        check(cudaMemsetAsync(job->counter, 0, 64 * 4, stream), "counters");
    check(job->form(stream, s), "stream");
}

template <class F, bool DOWN, int BLOCKS> static cudaError_t form_of(cudaStream_t stream, dg_stream_job job)
{
    job.n_unit = (DOWN ? N_FF : N_EMBD) / F::UNIT;
    return launch_stream<F, DOWN, 4, BLOCKS>(stream, job);
}

typedef struct form {
    const char *name;
    form_fn *of[2]; /* gate and up, down */
} form;
template <class T> struct inside;
template <class T> struct inside<void(T)> {
    typedef T type;
};
#define FORM(name, F, blocks)                                                                                          \
    {name, {form_of<inside<void F>::type, false, blocks>, form_of<inside<void F>::type, true, blocks>}}

static const form int4_forms[] = {
    FORM("old loop, 4 units a stage", (int4_form<OLD_LOOP, 4>), 1),
    FORM("old loop, 2 units", (int4_form<OLD_LOOP, 2>), 1),
    FORM("new loop, 4 units", (int4_form<NEW_LOOP, 4>), 1),
    FORM("new loop, 4 units, weights leave first", (int4_form<NEW_LOOP, 4, true>), 1),
    FORM("new loop, 3 units", (int4_form<NEW_LOOP, 3>), 1),
    FORM("new loop, 2 units", (int4_form<NEW_LOOP, 2>), 1),
    FORM("new loop, 2 units, weights leave first", (int4_form<NEW_LOOP, 2, true>), 1),
    FORM("new loop, 1 unit", (int4_form<NEW_LOOP, 1>), 1),
    FORM("new loop, 1 unit, two blocks", (int4_form<NEW_LOOP, 1>), 2),
};
static const form fp8_forms[] = {
    FORM("as it is", (format_fp8), 1),
    FORM("weights leave first", (fp8_once), 1),
    FORM("two blocks", (format_fp8), 2),
};

static void time_forms(dg_dtype type, const form *forms, int n_form, const dg_sort_job &sort, int32_t *counter)
{
    size_t each = (size_t)N_FF * N_EMBD, mat = dg_dtype_bytes(type, each);
    size_t gate_bytes = N_EXPERT * dg_cuda_pack_gated_bytes(type, N_FF, N_EMBD), down_bytes = N_EXPERT * dg_cuda_pack_bytes(type, N_EMBD, N_FF),
           layer = 2 * gate_bytes + down_bytes;
    int n_layer = (int)(((size_t)4 << 30) / layer) > 6 ? 6 : (int)(((size_t)4 << 30) / layer);
    fill_blocks<<<2048, 256>>>(stored, N_EXPERT * mat / 34, 34, 1, 0, 0);
    if (type == DG_INT4) {
        fill_steps<<<2048, 256>>>(stored, N_EXPERT * mat / 34);
    } else
        clear_nans<<<2048, 256>>>(stored, N_EXPERT * mat);
    check(dg_cuda_pack_gated(0, pool, stored, mat, type, N_EXPERT, N_FF, N_EMBD), "pack");
    check(dg_cuda_pack_gated(0, pool + gate_bytes, stored, mat, type, N_EXPERT, N_FF, N_EMBD), "pack");
    check(dg_cuda_pack_down(0, pool + 2 * gate_bytes, stored, mat, type, N_EXPERT, N_EMBD, N_FF), "pack");
    for (int l = 1; l < n_layer; l++)
        check(cudaMemcpy(pool + (size_t)l * layer, pool, layer, cudaMemcpyDeviceToDevice), "copy");
    for (int down = 0; down < 2; down++) {
        part_job job = {};
        dg_stream_job *s = &job.stream;
        size_t n = (size_t)N_PAIR * (down ? N_EMBD : N_FF) * 2;
        uint16_t *want = (uint16_t *)host_memory(n), *got = (uint16_t *)host_memory(n);
        void *out = down ? result_rows : h_rows;
        bool bytes = type == DG_INT4;
        s->n_expert = N_EXPERT;
        s->n_pair = N_PAIR;
        s->piece = sort.piece;
        s->n_piece = sort.n_piece;
        s->row = down ? NULL : sort.row;
        s->x = (const unsigned char *)(down ? bytes ? h_bytes : h_rows : bytes ? x_bytes : x_rows);
        s->x_bytes = (size_t)(down ? N_FF : N_EMBD) / 64 * (bytes ? BLOCKS_UNIT : 128);
        s->w[0] = pool + (down ? 2 * gate_bytes : 0);
        s->w[1] = down ? s->w[0] : pool + gate_bytes;
        s->mat_bytes = (down ? down_bytes : gate_bytes) / N_EXPERT;
        s->tiles = group_tiles(down ? N_EMBD : N_FF);
        s->n_group = group_count(down ? N_EMBD : N_FF);
        s->factor = 1;
        s->out = {down ? DG_CUDA_BF16 : DG_CUDA_F16, out, down ? N_EMBD : N_FF};
        job.layer_bytes = layer;
        job.counter = counter;
        floor_job least = {s->w[0], down ? down_bytes : 2 * gate_bytes, sink};
        printf("%s %s: floor %.1f us\n", dg_dtype_name(type), down ? "down" : "gate+up", time_layers(enqueue_floor, &least, n_layer));
        for (int f = 0; f < n_form; f++) {
            unsigned differ = 0;
            float far = 0;
            job.form = forms[f].of[down];
            check(cudaMemset(out, 0xFF, n), "clear");
            enqueue_part(0, &job, 0);
            check(cudaMemcpy(f ? got : want, out, n, cudaMemcpyDeviceToHost), "results");
            for (size_t i = 0; f && i < n / 2; i++) {
                float a, b;
                dg_widen(&a, got + i, down ? DG_BF16 : DG_F16, 1);
                dg_widen(&b, want + i, down ? DG_BF16 : DG_F16, 1);
                differ += got[i] != want[i];
                far = fabsf(a - b) > far ? fabsf(a - b) : far;
            }
            printf("  %-42s %7.1f us, %u of %zu values differ from the first form's, by %.2g at most\n", forms[f].name,
                   time_layers(enqueue_part, &job, n_layer), differ, n / 2, (double)far);
            fflush(stdout);
        }
        free(want);
        free(got);
        if (!down && bytes) {
            dg_byte_blocks rows = {(const uint16_t *)h_rows, N_PAIR, N_FF, true, (unsigned char *)h_bytes};
            check(dg_narrow_blocks(0, &rows), "narrow");
        }
    }
}

int main(void)
{
    int32_t expert[N_PAIR];
    pool = (unsigned char *)device_memory((size_t)4 << 30);
    stored = (unsigned char *)device_memory((size_t)1 << 30);
    sink = (uint32_t *)device_memory(64);
    x_rows = device_memory((size_t)N_ROW * N_EMBD * 2);
    x_bytes = device_memory((size_t)N_ROW * (N_EMBD / 64) * BLOCKS_UNIT);
    h_rows = device_memory((size_t)N_PAIR * N_FF * 2);
    h_bytes = device_memory((size_t)N_PAIR * (N_FF / 64) * BLOCKS_UNIT);
    result_rows = device_memory((size_t)N_PAIR * N_EMBD * 2);
    fill_values<<<1024, 256>>>((uint16_t *)x_rows, (size_t)N_ROW * N_EMBD, true, 1, 3);
    dg_byte_blocks rows = {(const uint16_t *)x_rows, N_ROW, N_EMBD, true, (unsigned char *)x_bytes};
    check(dg_narrow_blocks(0, &rows), "narrow");
    uint64_t seed = 99;
    for (int r = 0; r < N_ROW; r++)
        for (int j = 0; j < N_USED; j++) {
            bool taken;
            do {
                expert[r * N_USED + j] = (int32_t)(mixed(seed++) % N_EXPERT);
                taken = false;
                for (int i = 0; i < j; i++)
                    taken |= expert[r * N_USED + i] == expert[r * N_USED + j];
            } while (taken);
        }
    dg_sort_job sort = {};
    int32_t *on_device = (int32_t *)device_memory(sizeof expert);
    check(cudaMemcpy(on_device, expert, sizeof expert, cudaMemcpyHostToDevice), "copy");
    sort.expert = on_device;
    sort.n_pair = N_PAIR;
    sort.n_used = N_USED;
    sort.n_expert = N_EXPERT;
    sort.piece_rows = DG_PIECE_ROWS;
    sort.start = (int32_t *)device_memory((N_EXPERT + 1) * 4);
    sort.row = (int32_t *)device_memory(N_PAIR * 4);
    sort.place = (int32_t *)device_memory(N_PAIR * 4);
    sort.piece = (dg_expert_piece *)device_memory((size_t)dg_most_pieces(N_PAIR, N_EXPERT) * sizeof(dg_expert_piece));
    sort.n_piece = (int32_t *)device_memory(4);
    sort.counter = (int32_t *)device_memory(DG_PIECE_COUNTERS * 4);
    sort.n_tile = dg_most_tiles(N_PAIR, N_EXPERT);
    sort.tile = (dg_expert_tile *)device_memory((size_t)sort.n_tile * sizeof(dg_expert_tile));
    int32_t *counter = (int32_t *)device_memory(64 * 4);
    dg_byte_rows none = {};
    check(dg_sort_pairs(0, &sort, &none), "sort");
    time_forms(DG_INT4, int4_forms, sizeof int4_forms / sizeof *int4_forms, sort, counter);
    time_forms(DG_FP8, fp8_forms, sizeof fp8_forms / sizeof *fp8_forms, sort, counter);
    return 0;
}
