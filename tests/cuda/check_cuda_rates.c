/* cuda_rates.cu: every word is read once, and products of nothing are nothing. */
#include "cuda/cuda_rates.h"
#include "cuda/cuda_check.h"

enum { N_SM = 2, N_SINK = N_SM * DG_CUDA_RATE_BLOCKS * DG_CUDA_RATE_THREADS };

static void check_read(size_t bytes)
{
    if (!case_begin("rates: read %zu bytes", bytes))
        return;
    size_t n = bytes / sizeof(uint32_t);
    uint32_t *host = host_bytes(bytes), want = 0, got = 0, part[N_SINK];
    for (size_t i = 0; i < n; i++)
        want ^= host[i] = random_bits();
    uint32_t *sink = device_bytes(sizeof part);
    launched(dg_cuda_read_all(NULL, device_copy(host, bytes), bytes, sink, N_SM));
    device_read(part, sink, sizeof part);
    for (int i = 0; i < N_SINK; i++)
        got ^= part[i];
    if (got != want)
        case_fail("%08x, wanted %08x", (unsigned)got, (unsigned)want);
    case_end();
}

static void check_multiply(int n)
{
    enum { N = N_SM * 2 * DG_CUDA_RATE_THREADS };
    if (!case_begin("rates: %d products", n))
        return;
    float part[N];
    float *sink = device_bytes(sizeof part);
    launched(dg_cuda_multiply(NULL, sink, n, N_SM));
    device_read(part, sink, sizeof part);
    for (int i = 0; i < N; i++)
        if (part[i] != 0) {
            case_fail("thread %d has %g", i, (double)part[i]);
            break;
        }
    case_end();
}

void check_cuda_rates(void)
{
    check_read(16);
    check_read(16 * 4097);
    check_read(16 * (size_t)N_SINK * 5 + 16 * 3);
    check_multiply(0);
    check_multiply(8);
}
