/* The instructions of cuda_device.cuh against plain sums: on a device this checks what we think of
 * the hardware, on the host the emulation that the other checks rest on. */
#include "cuda/cuda_device.cuh"
#include "cuda/cuda_check.h"
#include <math.h>
#ifndef __CUDACC__
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

/* One warp: d = a b + c with a [16, 16] row-major, b [8, 16] (its columns), both of 16 bits,
 * through shared memory and ldmatrix; b is loaded transposed from [16, 8] if asked. */
static __global__ void one_mma(float *d, const uint16_t *a, const uint16_t *b, const float *c,
                               int half, int trans)
{
    __shared__ __align__(16) uint16_t sa[16 * 16];
    __shared__ __align__(16) uint16_t sb[16 * 8];
    dg_grid_wait();
    int lane = (int)threadIdx.x;
    for (int i = lane; i < 256; i += 32)
        sa[i] = a[i];
    for (int i = lane; i < 128; i += 32)
        sb[i] = b[i];
    __syncwarp();
    uint32_t fa[4], fb[2];
    float acc[4];
    dg_ldmatrix_x4(fa, sa + lane % 16 * 16 + lane / 16 * 8);
    if (trans)
        dg_ldmatrix_x2_trans(fb, sb + lane % 16 * 8);
    else
        dg_ldmatrix_x2(fb, sb + lane % 8 * 16 + lane / 8 % 2 * 8);
    for (int i = 0; i < 4; i++)
        acc[i] = c[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2];
    if (half)
        dg_mma_f16(acc, fa, fb);
    else
        dg_mma_bf16(acc, fa, fb);
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = acc[i];
}

static void check_mma(dg_dtype type, bool trans)
{
    if (!case_begin("device: mma %s%s", type == DG_F16 ? "f16" : "bf16",
                    trans ? ", b transposed" : ""))
        return;
    float *a = random_floats(256, 1), *b = random_floats(128, 1), *c = random_floats(128, 1);
    uint16_t na[256], nb[128], tb[128];
    dg_narrow(na, type, a, 256);
    dg_narrow(nb, type, b, 128);
    dg_widen(a, na, type, 256);
    dg_widen(b, nb, type, 128);
    for (int n = 0; n < 8; n++)
        for (int k = 0; k < 16; k++)
            tb[k * 8 + n] = nb[n * 16 + k];
    float got[128];
    double want[128];
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            want[m * 8 + n] = c[m * 8 + n];
            for (int k = 0; k < 16; k++)
                want[m * 8 + n] += (double)a[m * 16 + k] * b[n * 16 + k];
        }
    float *d = (float *)device_bytes(sizeof got);
    launched(DG_LAUNCH(one_mma, 1, 32, 0, (cudaStream_t)0, d,
                       (const uint16_t *)device_copy(na, sizeof na),
                       (const uint16_t *)device_copy(trans ? tb : nb, sizeof nb),
                       (const float *)device_copy(c, 512), type == DG_F16, trans));
    device_read(got, d, sizeof got);
    expect_close("d", got, want, 128, 1e-6, 1e-5);
    case_end();
}

static __global__ void one_mma_s8(int *d, const uint32_t *a, const uint32_t *b, int is_unsigned)
{
    dg_grid_wait();
    int lane = (int)threadIdx.x, row = lane / 4, four = lane % 4;
    uint32_t fa[4], fb[2] = {b[row * 8 + four], b[row * 8 + four + 4]};
    for (int i = 0; i < 4; i++)
        fa[i] = a[(row + 8 * (i % 2)) * 8 + four + 4 * (i / 2)];
    int acc[4] = {1, 2, 3, 4};
    if (is_unsigned)
        dg_mma_u8s8(acc, fa, fb);
    else
        dg_mma_s8(acc, fa, fb);
    for (int i = 0; i < 4; i++)
        d[(row + 8 * (i / 2)) * 8 + 2 * four + i % 2] = acc[i] - i - 1;
}

static void check_mma_s8(bool is_unsigned)
{
    if (!case_begin("device: mma %s8", is_unsigned ? "u" : "s"))
        return;
    uint8_t a[16 * 32], b[8 * 32];
    for (int i = 0; i < 16 * 32; i++)
        a[i] = (uint8_t)random_bits();
    for (int i = 0; i < 8 * 32; i++)
        b[i] = (uint8_t)random_bits();
    int *d = (int *)device_bytes(512), got[128], want[128];
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            want[m * 8 + n] = 0;
            for (int k = 0; k < 32; k++)
                want[m * 8 + n] +=
                    (is_unsigned ? a[m * 32 + k] : (int8_t)a[m * 32 + k]) * (int8_t)b[n * 32 + k];
        }
    launched(DG_LAUNCH(one_mma_s8, 1, 32, 0, (cudaStream_t)0, d,
                       (const uint32_t *)device_copy(a, sizeof a),
                       (const uint32_t *)device_copy(b, sizeof b), is_unsigned));
    device_read(got, d, 512);
    expect_same("d", got, want, 512);
    case_end();
}

/* A ring of three stages that cp.async fills: sums of pieces of 16 bytes, one thread each. */
static __global__ void ring_of_copies(int *sum, const int *x, int n_stage)
{
    DG_SHARED(ring);
    dg_grid_wait();
    int t = (int)threadIdx.x, n = (int)blockDim.x, total = 0;
    for (int s = 0; s < 2; s++) {
        dg_cp_async16_if(ring + (s * n + t) * 16, x + (size_t)(s * n + t) * 4, s < n_stage);
        dg_cp_async_commit();
    }
    for (int s = 0; s < n_stage; s++) {
        dg_cp_async_wait<1>();
        __syncthreads();
        const int *stage = (const int *)(ring + s % 3 * n * 16);
        for (int i = 0; i < 4; i++)
            total += stage[(t + 1) % n * 4 + i];
        bool more = s + 2 < n_stage;
        dg_cp_async16_if(ring + ((s + 2) % 3 * n + t) * 16,
                         x + (size_t)(more ? (s + 2) * n + t : 0) * 4, more);
        dg_cp_async_commit();
    }
    sum[t] = total;
}

static void check_cp_async(void)
{
    enum { N = 96, STAGES = 7 };
    if (!case_begin("device: cp.async"))
        return;
    int x[N * STAGES * 4], got[N], want[N] = {0};
    for (int i = 0; i < N * STAGES * 4; i++) {
        x[i] = random_int(-1000, 1000);
        want[(i / 4 % N + N - 1) % N] += x[i];
    }
    int *sum = (int *)device_bytes(sizeof got);
    launched(DG_LAUNCH(ring_of_copies, 1, N, 3 * N * 16, (cudaStream_t)0, sum,
                       (const int *)device_copy(x, sizeof x), (int)STAGES));
    device_read(got, sum, sizeof got);
    expect_same("sums", got, want, sizeof got);
    case_end();
}

/* A producer warp fills two stages by bulk copies, three warps consume them. */
static __global__ void ring_of_bulk(int *sum, const int *x, int n_stage)
{
    enum { WORDS = 256, N_CONSUMER = 96 };
    __shared__ __align__(128) int ring[2][WORDS];
    __shared__ uint64_t full[2], empty[2];
    dg_grid_wait();
    int t = (int)threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            dg_mbar_init(&full[i], 1);
            dg_mbar_init(&empty[i], N_CONSUMER / 32);
        }
        dg_mbar_init_fence();
    }
    __syncthreads();
    if (t >= N_CONSUMER) {
        if (t == N_CONSUMER)
            for (int s = 0; s < n_stage; s++) {
                if (s >= 2)
                    dg_mbar_wait(&empty[s % 2], (s / 2 - 1) & 1);
                dg_mbar_expect(&full[s % 2], WORDS * 4);
                dg_bulk_g2s(ring[s % 2], x + s * WORDS, WORDS * 2, &full[s % 2]);
                dg_bulk_g2s(ring[s % 2] + WORDS / 2, x + s * WORDS + WORDS / 2, WORDS * 2,
                            &full[s % 2]);
            }
        return;
    }
    int total = 0;
    for (int s = 0; s < n_stage; s++) {
        dg_mbar_wait(&full[s % 2], s / 2 & 1);
        uint32_t last = 0;
        for (int i = t; i < WORDS; i += N_CONSUMER) {
            last = (uint32_t)ring[s % 2][i];
            total += (int)last;
        }
        __syncwarp();
        if (t % 32 == 0)
            dg_mbar_arrive_after(&empty[s % 2], last);
    }
    dg_bar_sync(1, N_CONSUMER);
    sum[t] = total;
}

static void check_bulk(void)
{
    enum { STAGES = 9 };
    if (!case_begin("device: mbarriers and bulk copies"))
        return;
    int x[STAGES * 256], got[96], want[96] = {0};
    for (int i = 0; i < STAGES * 256; i++) {
        x[i] = random_int(-1000, 1000);
        want[i % 256 % 96] += x[i];
    }
    int *sum = (int *)device_bytes(sizeof got);
    launched(DG_LAUNCH(ring_of_bulk, 1, 128, 0, (cudaStream_t)0, sum,
                       (const int *)device_copy(x, sizeof x), (int)STAGES));
    device_read(got, sum, sizeof got);
    expect_same("sums", got, want, sizeof got);
    case_end();
}

/* Shuffles, ballots, 16-bit values. */
static __global__ void small_things(uint32_t *out, const float *x)
{
    dg_grid_wait();
    int lane = (int)threadIdx.x;
    out[lane] = __float_as_uint(dg_warp_sum(x[lane]));
    out[32 + lane] = __float_as_uint(dg_warp_max(x[lane]));
    out[64 + lane] = __ballot_sync(DG_ALL_LANES, x[lane] > 0);
    out[96 + lane] = dg_pack_bf16(x[lane], -x[lane]);
    out[128 + lane] = dg_store_f16(x[lane], x[lane] * 1e6f);
    out[160 + lane] =
        dg_half2_fma(dg_pack_f16(x[lane], 3), dg_pack_f16(2, x[lane]), dg_pack_f16(1, -1));
    out[192 + lane] = dg_lop3<0xEA>((uint32_t)lane, 0x0F0F0F0Fu, 0x64006400u);
    out[224 + lane] = (uint32_t)__shfl_up_sync(DG_ALL_LANES, lane, 3) |
                      (uint32_t)__shfl_down_sync(DG_ALL_LANES, lane, 3, 8) << 8;
}

static void check_small_things(void)
{
    if (!case_begin("device: shuffles and 16-bit values"))
        return;
    float x[32], most = -1e30f;
    double sum = 0;
    uint32_t positive = 0, got[256], want[256];
    for (int i = 0; i < 32; i++) {
        x[i] = (float)random_int(-2048, 2048) / 16;
        sum += x[i];
        most = fmaxf(most, x[i]);
        positive |= (uint32_t)(x[i] > 0) << i;
    }
    for (int i = 0; i < 32; i++) {
        float whole = (float)sum, high = x[i] * 1e6f;
        high = high > 65504 ? 65504 : high < -65504 ? -65504 : high;
        memcpy(&want[i], &whole, 4);
        memcpy(&want[32 + i], &most, 4);
        want[64 + i] = positive;
        want[96 + i] = (uint32_t)dg_float_to_bf16(-x[i]) << 16 | dg_float_to_bf16(x[i]);
        want[128 + i] = (uint32_t)dg_float_to_f16(high) << 16 | dg_float_to_f16(x[i]);
        want[160 + i] = (uint32_t)dg_float_to_f16(3 * dg_f16_to_float(dg_float_to_f16(x[i])) - 1)
                            << 16 |
                        dg_float_to_f16(2 * dg_f16_to_float(dg_float_to_f16(x[i])) + 1);
        want[192 + i] = ((uint32_t)i & 0x0F0F0F0Fu) | 0x64006400u;
        want[224 + i] = (uint32_t)(i < 3 ? i : i - 3) | (uint32_t)(i % 8 + 3 > 7 ? i : i + 3) << 8;
    }
    uint32_t *out = (uint32_t *)device_bytes(sizeof got);
    launched(DG_LAUNCH(small_things, 1, 32, 0, (cudaStream_t)0, out,
                       (const float *)device_copy(x, sizeof x)));
    device_read(got, out, sizeof got);
    expect_same("values", got, want, sizeof got);
    case_end();
}

#ifndef __CUDACC__
/* ---- what the emulation must notice ---- */

static void diverge(int *out)
{
    out[threadIdx.x] = threadIdx.x < 16 ? __shfl_xor_sync(DG_ALL_LANES, 1, 1) : 0;
}

static void diverge_in_place(int *out)
{
    out[threadIdx.x] = threadIdx.x < 16 ? __shfl_xor_sync(DG_ALL_LANES, 1, 1)
                                        : (int)__ballot_sync(DG_ALL_LANES, 1);
}

static void hang(int *out)
{
    if (threadIdx.x < 32)
        dg_bar_sync(1, 64);
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

static void wait_for_ever(int *out)
{
    __shared__ uint64_t bar;
    if (threadIdx.x == 0)
        dg_mbar_init(&bar, 2);
    __syncthreads();
    if (threadIdx.x == 0)
        dg_mbar_arrive(&bar);
    dg_mbar_wait(&bar, 0);
    out[threadIdx.x] = 1;
}

static void overflow_stack(int *out)
{
    volatile char large[300 << 10];
    for (size_t i = sizeof large; i > 0; i -= 1024)
        large[i - 1] = 1;
    out[threadIdx.x] = large[0];
}

static void expect_death(const char *name, void (*kernel)(int *), int signal_wanted)
{
    if (!case_begin("device: %s is noticed", name))
        return;
    int *out = (int *)device_bytes(64 * sizeof *out);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        signal(SIGABRT, SIG_DFL);
        DG_LAUNCH(kernel, 1, 64, 0, (cudaStream_t)0, out);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    bool died = WIFSIGNALED(status) ? !signal_wanted || WTERMSIG(status) == signal_wanted
                                    : !signal_wanted && WEXITSTATUS(status) != 0;
    if (!died)
        case_fail("status %x", (unsigned)status);
    case_end();
}

/* Reads a copy before its time, and behind one that is begun again too early. */
static void read_early(int *out, const int *x)
{
    DG_SHARED(memory);
    dg_cp_async16(memory, x);
    dg_cp_async_commit();
    out[0] = *(int *)memory;
    dg_cp_async_wait<0>();
    out[1] = *(int *)memory;
    dg_cp_async16(memory, x);
    out[2] = *(int *)memory;
    dg_cp_async_commit();
    dg_cp_async_wait<0>();
}

static void check_early(void)
{
    if (!case_begin("device: reading too early is noticed"))
        return;
    int x[4] = {7, 7, 7, 7}, out[3] = {0};
    launched(DG_LAUNCH(read_early, 1, 1, 16, (cudaStream_t)0, (int *)out,
                       (const int *)device_copy(x, 16)));
    if (out[0] != -1 || out[1] != 7 || out[2] != -1)
        case_fail("read %d %d %d", out[0], out[1], out[2]);
    case_end();
}

static void check_notices(void)
{
    expect_death("a collective without all lanes", diverge, SIGABRT);
    expect_death("lanes in different collectives", diverge_in_place, SIGABRT);
    expect_death("a barrier that not all reach", hang, SIGABRT);
    expect_death("an mbarrier without its arrivals", wait_for_ever, SIGABRT);
    expect_death("a stack that overflows", overflow_stack, 0);
    check_early();
}
#else
static void check_notices(void)
{
}
#endif

extern "C" void check_cuda_device(void)
{
    for (int trans = 0; trans < 2; trans++) {
        check_mma(DG_BF16, trans);
        check_mma(DG_F16, trans);
    }
    check_mma_s8(false);
    check_mma_s8(true);
    check_cp_async();
    check_bulk();
    check_small_things();
    check_notices();
}
