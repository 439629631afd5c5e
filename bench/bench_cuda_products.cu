/* Times the products of the CUDA backend on the shapes of the model, against floors measured in the same run.
 *
 *   make build/release/bench_cuda_products && build/release/bench_cuda_products [dense | bytes | head | rows | repeat | packing]
 *
 * Each figure is the median of replays of a graph of several layers with weights of their own, 3 GB together, so that
 * none come from a cache. floor: the time in which a kernel that only reads takes the same bytes in; eta: floor / time.
 * Results are compared with sums in double on the host for some rows. The experts have a
 * bench of their own. */
#include "bench_cuda.cuh"
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_words.h"

/* ---- dense ---- */

enum { MAX_ROWS = 2048, MAX_PART = 3, POOL_GB = 4 };

static unsigned char *pool;   /* packed weights of all layers */
static unsigned char *stored; /* of one */
static float *out_rows;
static uint32_t *sink;
static uint16_t *x_rows[2]; /* bfloat16, half */
static float *x_floats;
static unsigned char *x_bytes; /* rows of E4M3, of as many values as use_rows() says */
static void *h_rows;

typedef struct dense_case {
    const char *name;
    int n_in, n_part, n_out[MAX_PART];
    bool gated;
} dense_case;

typedef struct dense_job {
    const dense_case *shape;
    dg_dtype type;
    int n_row;
    size_t part_at[MAX_PART], layer_bytes;
    dg_slab_tile tile;
} dense_job;

/* As weights lie on this device. */
static size_t dense_bytes(dg_dtype type, int n_out, int n_in)
{
    return dg_cuda_has_groups() ? dg_cuda_slab_bytes(n_out, type == DG_FP8 ? (n_in + 1) / 2 : n_in) : dg_cuda_pack_bytes(type, n_out, n_in);
}

static void dense_pack(void *packed, dg_dtype type, int n_out, int n_in)
{
    check(dg_cuda_has_groups() ? dg_cuda_pack_slabs(0, packed, stored, type, n_out, n_in)
                               : dg_cuda_pack(0, packed, stored, 0, type, 1, n_out, n_in),
          "pack");
}

static dg_cuda_rows rows_of(dg_dtype type, int n)
{
    dg_cuda_form form = dg_cuda_form_of(type);
    if (type == DG_FP8)
        return {DG_CUDA_E4M3, x_bytes, (n + 127) / 128 * 128};
    return {form, x_rows[form == DG_CUDA_F16], dg_cuda_ld(n)};
}

static void use_rows(dg_dtype type, int n_row, int n)
{
    if (type == DG_FP8)
        check(dg_cuda_narrow(0, rows_of(type, n), x_floats, n_row, n), "rows");
}

/* One row as the products read it. */
static void read_row(float *x, dg_dtype type, int row, int n)
{
    dg_cuda_rows rows = rows_of(type, n);
    size_t bytes = dg_cuda_row_bytes(rows);
    unsigned char *stored_row = (unsigned char *)host_memory(bytes);
    float factor;
    check(cudaMemcpy(stored_row, (unsigned char *)rows.data + (size_t)row * bytes, bytes, cudaMemcpyDeviceToHost), "x");
    if (rows.form != DG_CUDA_E4M3) {
        dg_widen(x, stored_row, rows.form == DG_CUDA_F16 ? DG_F16 : DG_BF16, (size_t)rows.ld);
    } else {
        memcpy(&factor, stored_row + rows.ld, sizeof factor);
        for (int i = 0; i < rows.ld; i++)
            x[i] = dg_e4m3_to_float(stored_row[i]) * factor;
    }
    free(stored_row);
}

static void enqueue_dense(cudaStream_t stream, void *arg, int layer)
{
    dense_job *job = (dense_job *)arg;
    const dense_case *shape = job->shape;
    dg_cuda_matrix w[MAX_PART];
    dg_cuda_product_args a = {job->n_row, rows_of(job->type, shape->n_in), 1, shape->n_part, {}};
    size_t n_y = 0;
    for (int p = 0; p < shape->n_part; p++) {
        w[p] = {job->type, 1, shape->n_out[p], shape->n_in, pool + (size_t)layer * job->layer_bytes + job->part_at[p], NULL,
                dg_cuda_has_groups()};
        a.part[p].w = &w[p];
        a.part[p].y = out_rows + n_y;
        a.part[p].ldy = (size_t)shape->n_out[p];
        n_y += (size_t)job->n_row * (size_t)shape->n_out[p];
    }
    if (shape->gated) {
        dg_cuda_rows h = {a.x.form == DG_CUDA_E4M3 ? DG_CUDA_BF16 : a.x.form, h_rows, dg_cuda_ld(shape->n_out[0])};
        dg_cuda_gated_args g = {job->n_row, a.x, &w[0], &w[1], h};
        check(job->tile == DG_SLAB_BEST ? dg_cuda_gated(stream, &g) : dg_cuda_gated_slabs(stream, &g, job->tile), "gated");
    } else {
        check(job->tile == DG_SLAB_BEST ? dg_cuda_product(stream, &a) : dg_cuda_product_slabs(stream, &a, job->tile), "product");
    }
}

/* Some results of the first layer against sums in double: the largest error, of the largest result. */
static double dense_error(const dense_job *job)
{
    const dense_case *shape = job->shape;
    int n_out = shape->n_out[0], n_in = shape->n_in, ld = (n_in + 127) / 128 * 128;
    size_t row_bytes = dg_dtype_bytes(job->type, (size_t)n_in);
    float *w = (float *)host_memory(2 * (size_t)n_in * sizeof *w), *x = (float *)host_memory((size_t)ld * sizeof *x);
    unsigned char *bytes = (unsigned char *)host_memory(row_bytes);
    double worst = 0, largest = 1e-30;
    for (int i = 0; i < 48; i++) {
        int out = (int)(mixed((uint64_t)i) % (uint32_t)n_out), row = (int)(mixed((uint64_t)i + 1000) % (uint32_t)job->n_row);
        dg_cuda_form form = job->type == DG_FP8 ? DG_CUDA_BF16 : dg_cuda_form_of(job->type);
        double sum[2] = {};
        read_row(x, job->type, row, n_in);
        check(cudaMemcpy(bytes, stored + (size_t)out * row_bytes, row_bytes, cudaMemcpyDeviceToHost), "w");
        dg_widen(w, bytes, job->type, (size_t)n_in);
        for (int k = 0; k < n_in; k++)
            sum[0] += (double)w[k] * x[k];
        double want = sum[0], got;
        if (shape->gated) { /* gate and up are the same stored matrix here */
            double g = sum[0], unit = form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
            uint16_t h;
            float wide;
            want = 0.5 * g * (1 + tanh(0.7978845608 * (g + 0.044715 * g * g * g))) * g / unit;
            check(cudaMemcpy(&h, (uint16_t *)h_rows + (size_t)row * (size_t)dg_cuda_ld(n_out) + out, 2, cudaMemcpyDeviceToHost), "h");
            dg_widen(&wide, &h, form == DG_CUDA_F16 ? DG_F16 : DG_BF16, 1);
            got = wide;
        } else {
            float y;
            check(cudaMemcpy(&y, out_rows + (size_t)row * (size_t)n_out + out, 4, cudaMemcpyDeviceToHost), "y");
            got = y;
        }
        double error = fabs(got - want);
        worst = error > worst || !(error == error) ? error : worst;
        largest = fabs(want) > largest ? fabs(want) : largest;
    }
    free(w);
    free(x);
    free(bytes);
    return worst / largest;
}

/* A gated tile has whole slabs of gate and of up. */
static bool fits(const dense_case *shape, int tile)
{
    return !shape->gated || (tile != DG_SLAB_128X192 && tile <= DG_SLAB_64X128);
}

/* Microseconds of each tile, where there is a choice. */
static void dense_tiles(dense_job *job, int n_layer)
{
    static const char *const name[DG_SLAB_TILES] = {"256x128", "192x128", "128x192", "128x128", "64x128", "64x96"};
    if (!dg_cuda_has_groups())
        return;
    printf("|   tiles of rows x weights |");
    for (int t = 0; t < DG_SLAB_TILES; t++) {
        job->tile = (dg_slab_tile)t;
        if (!fits(job->shape, t))
            continue;
        enqueue_dense(0, job, 0);
        check(cudaDeviceSynchronize(), "run");
        double error = dense_error(job);
        printf(" %s: %.1f%s", name[t], time_layers(enqueue_dense, job, n_layer), error < 1e-2 ? "" : " WRONG");
    }
    printf(" |\n");
    job->tile = DG_SLAB_BEST;
}

/* Every tile many times over against the bits of one: a stage that is filled before all have read it would show now and
 * then. */
static void dense_repeat(const dense_case *shape, int n_row, int n_run)
{
    dense_job job = {shape, DG_BF16, n_row, {}, 0, DG_SLAB_128X128};
    size_t n_y = 0, n;
    unsigned *count = (unsigned *)device_memory(4), n_different;
    if (!dg_cuda_has_groups())
        return;
    for (int p = 0; p < shape->n_part; p++) {
        job.part_at[p] = job.layer_bytes;
        job.layer_bytes += (dense_bytes(job.type, shape->n_out[p], shape->n_in) + 255) / 256 * 256;
        n_y += (size_t)n_row * (size_t)shape->n_out[p];
    }
    fill_stored(stored, job.type, (size_t)shape->n_out[0] * (size_t)shape->n_in);
    for (int p = 0; p < shape->n_part; p++)
        dense_pack(pool + job.part_at[p], job.type, shape->n_out[p], shape->n_in);
    n = shape->gated ? (size_t)n_row * (size_t)dg_cuda_ld(shape->n_out[0]) / 2 : n_y;
    void *got = shape->gated ? h_rows : out_rows, *want = device_memory(n * 4);
    enqueue_dense(0, &job, 0);
    check(cudaMemcpy(want, got, n * 4, cudaMemcpyDeviceToDevice), "copy");
    printf("%s, %d rows, values that differ in %d runs:", shape->name, n_row, n_run);
    for (int t = 0; t < DG_SLAB_TILES; t++) {
        job.tile = (dg_slab_tile)t;
        if (!fits(shape, t))
            continue;
        check(cudaMemset(count, 0, 4), "clear");
        for (int i = 0; i < n_run; i++) {
            if (i % 100 == 0)
                check(cudaMemset(got, 0xFF, n * 4), "clear");
            enqueue_dense(0, &job, 0);
            count_differences<<<132, 512>>>((const uint32_t *)want, (const uint32_t *)got, n, count);
        }
        check(cudaMemcpy(&n_different, count, 4, cudaMemcpyDeviceToHost), "compare");
        printf(" %u", n_different);
        fflush(stdout);
    }
    printf("\n");
    cudaFree(want);
    cudaFree(count);
}

static double dense(const dense_case *shape, dg_dtype type, const int *n_row, int n_run)
{
    dense_job job = {shape, type, 0, {}, 0, DG_SLAB_BEST};
    double flop = 0, us = 0;
    for (int p = 0; p < shape->n_part; p++) {
        job.part_at[p] = job.layer_bytes;
        job.layer_bytes += (dense_bytes(type, shape->n_out[p], shape->n_in) + 255) / 256 * 256;
        flop += 2.0 * shape->n_out[p] * shape->n_in;
    }
    int n_layer = (int)(3000000000ull / job.layer_bytes);
    n_layer = n_layer < 1 ? 1 : n_layer > 100 ? 100 : n_layer;
    fill_stored(stored, type, (size_t)shape->n_out[0] * (size_t)shape->n_in);
    for (int p = 0; p < shape->n_part; p++)
        dense_pack(pool + job.part_at[p], type, shape->n_out[p], shape->n_in);
    for (int l = 1; l < n_layer; l++)
        check(cudaMemcpy(pool + (size_t)l * job.layer_bytes, pool, job.layer_bytes, cudaMemcpyDeviceToDevice), "copy");
    floor_job least = {pool, job.layer_bytes, sink};
    double floor_us = time_layers(enqueue_floor, &least, n_layer);
    for (int i = 0; i < n_run; i++) {
        job.n_row = n_row[i];
        use_rows(type, n_row[i], shape->n_in);
        enqueue_dense(0, &job, 0);
        check(cudaDeviceSynchronize(), "run");
        double error = dense_error(&job), math_us = flop * n_row[i] / (type == DG_FP8 ? 1580e6 : 790e6);
        us = time_layers(enqueue_dense, &job, n_layer);
        double most = math_us > floor_us ? math_us : floor_us;
        printf("| %-16s %-6s | %4d | %8.1f | %5.0f | %5.0f | %7.1f | %.3f | %.1e |\n", shape->name, dg_dtype_name(type), n_row[i],
               us, (double)job.layer_bytes / us * 1e-3, flop * n_row[i] / us * 1e-6, most, most / us, error);
        fflush(stdout);
        if (n_row[i] == 256)
            dense_tiles(&job, n_layer);
    }
    return us;
}

/* ---- the soft embedding ---- */

enum { N_VOCAB = 262144, WIDTH = 2816, WORD_ROWS = 256 };

/* Logits of chance; `peak` raises one word of a row. */
static __global__ void fill_logits(float *z, size_t n, float spread, float peak)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        z[i] = normal(i) * spread + (i % N_VOCAB == mixed(i / N_VOCAB) % N_VOCAB ? peak : 0);
}

typedef struct soft_job {
    dg_cuda_words_args a;
    dg_cuda_matrix table, head;
    enum { HEAD, FIND, SOFT } what;
} soft_job;

static void enqueue_soft(cudaStream_t stream, void *arg, int)
{
    soft_job *job = (soft_job *)arg;
    if (job->what == soft_job::HEAD)
        check(dg_cuda_words_head(stream, &job->a, &job->head, rows_of(job->head.type, WIDTH)), "head");
    else if (job->what == soft_job::FIND)
        check(dg_cuda_words_find(stream, &job->a), "words");
    else
        check(dg_cuda_words_soft(stream, &job->a, &job->table, &job->table, 1), "soft");
}

/* The head without logits many times over: shares and statistics must have the bits of the first run. */
static void head_repeat(soft_job *job, int n_run)
{
    size_t shares = (size_t)WORD_ROWS * N_VOCAB / 2, stats = (size_t)WORD_ROWS * (N_VOCAB / DG_CUDA_WORD_CHUNK);
    const void *got[] = {job->a.w.p, job->a.w.top, job->a.w.top_at, job->a.w.mass, job->a.w.slope};
    void *want[5];
    unsigned *count = (unsigned *)device_memory(4), n_different;
    for (int run = 0; run <= n_run; run++) {
        enqueue_soft(0, job, 0);
        for (int i = 0; i < 5; i++) {
            size_t n = i ? stats : shares;
            if (run == 0) {
                want[i] = device_memory(n * 4);
                check(cudaMemcpy(want[i], got[i], n * 4, cudaMemcpyDeviceToDevice), "copy");
            } else {
                count_differences<<<1056, 256>>>((const uint32_t *)want[i], (const uint32_t *)got[i], n, count);
            }
            if (run % 100 == 0)
                check(cudaMemset((void *)got[i], 0xFF, n * 4), "clear");
        }
    }
    check(cudaMemcpy(&n_different, count, 4, cudaMemcpyDeviceToHost), "compare");
    printf("| head %s, values that differ in %d runs: %u |\n", dg_dtype_name(job->head.type), n_run, n_different);
    for (int i = 0; i < 5; i++)
        cudaFree(want[i]);
    cudaFree(count);
}

static void soft(dg_dtype type)
{
    soft_job job = {};
    size_t bytes = dg_cuda_words_bytes(WORD_ROWS, N_VOCAB, WIDTH);
    void *scratch = device_memory(bytes);
    dg_cuda_word_row *row = (dg_cuda_word_row *)host_memory(WORD_ROWS * sizeof *row);
    float *out = (float *)device_memory((size_t)WORD_ROWS * WIDTH * 4);
    for (int r = 0; r < WORD_ROWS; r++) {
        row[r].soft = out + (size_t)r * WIDTH;
        row[r].temperature = 1;
        row[r].uniform = 0.5;
    }
    dg_cuda_words_place(&job.a.w, scratch, WORD_ROWS, N_VOCAB, WIDTH);
    dg_cuda_word_row *rows = (dg_cuda_word_row *)device_memory(WORD_ROWS * sizeof *row);
    check(cudaMemcpy(rows, row, WORD_ROWS * sizeof *row, cudaMemcpyHostToDevice), "rows");
    unsigned char *found = (unsigned char *)device_memory(WORD_ROWS * 1024);
    job.a.out = {(float *)found, (int32_t *)(found + 4096), (int32_t *)(found + 8192), (float *)(found + 12288), (float *)(found + 65536),
                 (int32_t *)(found + 131072)};
    job.a.n_row = WORD_ROWS;
    job.a.n_vocab = N_VOCAB;
    job.a.row = rows;
    job.a.given = true;
    job.a.drop = DG_CUDA_SOFT_DROP;
    job.a.gathers = type != DG_F32;
    fill_stored(stored, type, (size_t)N_VOCAB * WIDTH);
    dense_pack(pool, type, N_VOCAB, WIDTH);
    job.table = job.head = {type, 1, N_VOCAB, WIDTH, pool, NULL, dg_cuda_has_groups()};
    if (job.table.slabs) {
        job.a.given = false;
        job.a.measured = true;
        job.a.softcap = 30;
        job.a.form = dg_cuda_form_of(type);
        double head_us = time_layers(enqueue_soft, &job, 1);
        job.what = soft_job::FIND;
        double us = time_layers(enqueue_soft, &job, 1);
        printf("| head with statistics %s: %.0f us, rows' conclusions %.0f us (floor %.0f) |\n", dg_dtype_name(type), head_us, us,
               2.0 * WORD_ROWS * N_VOCAB * WIDTH / 790e6);
        dg_cuda_words with_z = job.a.w;
        job.a.w = dg_cuda_words_without_z(with_z);
        job.a.leaves = true;
        job.what = soft_job::HEAD;
        printf("| the same without logits, with shares: %.0f us |\n", time_layers(enqueue_soft, &job, 1));
        head_repeat(&job, 1000);
        use_rows(DG_FP8, WORD_ROWS, WIDTH);
        fill_stored(stored, DG_FP8, (size_t)N_VOCAB * WIDTH);
        job.head.type = DG_FP8;
        job.head.data = pool + dense_bytes(type, N_VOCAB, WIDTH);
        dense_pack((void *)job.head.data, DG_FP8, N_VOCAB, WIDTH);
        printf("| the same with a head of E4M3: %.0f us (floor %.0f) |\n", time_layers(enqueue_soft, &job, 1),
               2.0 * WORD_ROWS * N_VOCAB * WIDTH / 1580e6);
        head_repeat(&job, 1000);
        job.a.w = with_z;
        job.a.leaves = false;
        job.a.form = DG_CUDA_F32;
        job.a.given = true;
        job.a.measured = false;
    }
    for (int peaked = 0; peaked < 2; peaked++) {
        fill_logits<<<2048, 256>>>(job.a.w.z, (size_t)WORD_ROWS * N_VOCAB, peaked ? 2 : 1, peaked ? 32 : 0);
        job.what = soft_job::FIND;
        double find_us = time_layers(enqueue_soft, &job, 1);
        job.what = soft_job::SOFT;
        double us = time_layers(enqueue_soft, &job, 1);
        printf("| soft embedding %s %s: %.0f us (floor of all words %.0f), statistics of given logits %.0f us |\n", dg_dtype_name(type),
               peaked ? "peaked" : "flat", us, 2.0 * WORD_ROWS * N_VOCAB * WIDTH / 790e6, find_us);
        fflush(stdout);
    }
    cudaFree(scratch);
    cudaFree(rows);
    cudaFree(out);
    cudaFree(found);
    free(row);
}

/* ---- packing ---- */

enum { N_EXPERT = 128, N_EMBD = 2816, N_FF = 704 };

static void packing(dg_dtype type)
{
    size_t each = (size_t)N_FF * N_EMBD, bytes = dg_dtype_bytes(type, each);
    cudaEvent_t begin, end;
    float ms;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (int i = 0; i < 2; i++) {
        check(cudaEventRecord(begin), "event");
        check(dg_cuda_pack(0, pool, stored, bytes, type, N_EXPERT, N_FF, N_EMBD), "pack");
        check(cudaEventRecord(end), "event");
        check(cudaEventSynchronize(end), "pack");
        check(cudaEventElapsedTime(&ms, begin, end), "event");
    }
    printf("packing %s: %.0f GB/s\n", dg_dtype_name(type), (double)bytes * N_EXPERT / ms * 1e-6);
}

int main(int argc, char **argv)
{
    static const dense_case qkv = {"q+k+v sliding", 2816, 3, {4096, 2048, 2048}, false};
    static const dense_case qk = {"q+k global", 2816, 2, {8192, 1024, 0}, false};
    static const dense_case o = {"o sliding", 4096, 1, {2816, 0, 0}, false}, o2 = {"o global", 8192, 1, {2816, 0, 0}, false};
    static const dense_case gate_up = {"gate+up dense", 2816, 2, {2112, 2112, 0}, true}, down = {"down dense", 2112, 1, {2816, 0, 0}, false};
    static const dense_case head = {"head", 2816, 1, {262144, 0, 0}, false};
    static const int canvas[] = {256}, many[] = {1, 16, 64, 256, 2048};
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "device");
    pool = (unsigned char *)device_memory((size_t)POOL_GB << 30);
    stored = (unsigned char *)device_memory((size_t)2 << 30);
    out_rows = (float *)device_memory((size_t)MAX_ROWS * 9216 * sizeof(float) > (size_t)256 * 262144 * 4 ? (size_t)MAX_ROWS * 9216 * 4
                                                                                                     : (size_t)256 * 262144 * 4);
    sink = (uint32_t *)device_memory(64);
    h_rows = device_memory((size_t)MAX_ROWS * 2112 * 2);
    for (int half = 0; half < 2; half++) {
        x_rows[half] = (uint16_t *)device_memory((size_t)MAX_ROWS * 8192 * 2);
        fill_values<<<1024, 256>>>(x_rows[half], (size_t)MAX_ROWS * 8192, half, 1, 3);
    }
    x_floats = (float *)device_memory((size_t)WORD_ROWS * 8192 * sizeof(float));
    x_bytes = (unsigned char *)device_memory((size_t)WORD_ROWS * (8192 + DG_CUDA_ROW_FACTOR));
    fill_logits<<<1024, 256>>>(x_floats, (size_t)WORD_ROWS * 8192, 1, 0);
    printf("%s, %d multiprocessors\n\n| product | rows | us | GB/s | TFLOP/s | floor us | eta | error |\n|---|---|---|---|---|---|---|---|\n",
           device.name, device.multiProcessorCount);
    bool all = argc < 2;
    if (all || !strcmp(argv[1], "dense")) {
        static const dense_case *const layer[] = {&qkv, &o, &qk, &o2, &gate_up, &down};
        static const int times[] = {25, 25, 5, 5, 30, 30};
        static const dg_dtype type[] = {DG_BF16, DG_Q4_K};
        for (int t = 0; t < 2; t++) {
            double step = 0;
            for (int i = 0; i < 6; i++)
                step += times[i] * dense(layer[i], t && i == 5 ? DG_Q8_0 : type[t], canvas, 1);
            printf("| dense products of a step, %s: %.2f ms |\n", dg_dtype_name(type[t]), step * 1e-3);
            dense(&head, t ? DG_Q6_K : DG_BF16, canvas, 1);
            soft(t ? DG_Q6_K : DG_BF16);
        }
    }
    if (dg_cuda_has_groups() && (all || !strcmp(argv[1], "bytes"))) {
        static const dense_case *const layer[] = {&qkv, &o, &qk, &o2, &gate_up};
        for (int i = 0; i < 5; i++)
            dense(layer[i], DG_FP8, canvas, 1);
    }
    if (argc > 1 && !strcmp(argv[1], "head")) {
        dense(&head, DG_BF16, canvas, 1);
        soft(DG_BF16);
    }
    if (all || !strcmp(argv[1], "rows")) {
        dense(&qkv, DG_BF16, many, 5);
        dense(&o, DG_BF16, many, 5);
        dense(&gate_up, DG_BF16, many, 5);
        dense(&down, DG_BF16, many, 5);
    }
    if (all || !strcmp(argv[1], "repeat")) {
        static const dense_case *const layer[] = {&qkv, &o, &gate_up, &down};
        for (int i = 0; i < 4; i++) {
            dense_repeat(layer[i], 256, i == 1 || i == 2 ? 2000 : 300);
            dense_repeat(layer[i], 200, 100);
        }
    }
    if (all || !strcmp(argv[1], "packing")) {
        packing(DG_BF16);
        packing(DG_Q4_K);
    }
    return 0;
}
