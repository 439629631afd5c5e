#include "kernels/check.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/rng.h"

enum { CANARY = 0xA5 };

const int check_sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11,   12,   13,
                           14, 15, 16, 17, 24, 31, 64, 100, 257, 704, 1000, 2112, 2816};
const int n_check_sizes = DG_COUNT(check_sizes);

void check_begin(check *c, const char *kernel)
{
    c->kernel = kernel;
    c->failing = false;
}

void check_end(check *c)
{
    check_release(c);
    printf("%-5s %-16s %s\n", c->set, c->kernel, c->failing ? "FAILED" : "ok");
    if (c->failing)
        c->failed++;
    else
        c->passed++;
}

void check_fail(check *c, const char *fmt, ...)
{
    if (c->failing)
        return;
    c->failing = true;
    va_list args;
    va_start(args, fmt);
    printf("%-5s %-16s ", c->set, c->kernel);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

uint64_t check_bits(check *c)
{
    return dg_rng_bits(&(dg_rng_key){.seed = c->seed}, c->n_draw++);
}

double check_uniform(check *c, double low, double high)
{
    return low + (high - low) * ((double)(check_bits(c) >> 11) * 0x1p-53);
}

int check_int(check *c, int low, int high)
{
    return low + (int)(check_bits(c) % (uint64_t)(high - low + 1));
}

void *check_bytes(check *c, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inside = (n + page - 1) / page * page;
    check_buffer b = {.map_bytes = inside + 2 * page, .data_bytes = n};
    b.map = mmap(NULL, b.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->n_buffer == CHECK_MAX_BUFFER || b.map == MAP_FAILED ||
        (inside && mprotect(b.map + page, inside, PROT_READ | PROT_WRITE) != 0)) {
        fprintf(stderr, "check_kernels: no memory for a buffer of %zu bytes\n", n);
        exit(2);
    }
    memset(b.map + page, CANARY, inside);
    b.data = b.map + page + (check_bits(c) & 1 ? inside - n : 0);
    c->buffer[c->n_buffer++] = b;
    return b.data;
}

void check_release(check *c)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    while (c->n_buffer > 0) {
        check_buffer *b = &c->buffer[--c->n_buffer];
        const unsigned char *end = b->data + b->data_bytes, *p = b->map + page;
        bool clean = true;
        for (; p < b->map + b->map_bytes - page; p++)
            clean = clean && ((p >= b->data && p < end) || *p == CANARY);
        if (!clean)
            check_fail(c, "wrote around a buffer of %zu bytes", b->data_bytes);
        munmap(b->map, b->map_bytes);
    }
}

float *check_floats(check *c, int n)
{
    return check_bytes(c, (size_t)n * sizeof(float));
}

float *check_normal(check *c, int n, double scale)
{
    float *x = check_floats(c, n);
    for (int i = 0; i < n; i++) { /* the sum of four 16-bit draws, centred, of variance 1 */
        uint64_t bits = check_bits(c);
        double sum = (double)(bits & 0xFFFF) + (double)(bits >> 16 & 0xFFFF) +
                     (double)(bits >> 32 & 0xFFFF) + (double)(bits >> 48);
        x[i] = (float)((sum - 131070) / 37837 * scale);
    }
    return x;
}

float *check_copy(check *c, const float *x, int n)
{
    float *y = check_floats(c, n);
    memcpy(y, x, (size_t)n * sizeof *x);
    return y;
}

static bool close_enough(float got, float want, double room)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want))
        return got == want;
    return fabs((double)got - (double)want) <= room + 0x1p-149;
}

void check_close(check *c, const float *got, const float *want, int n, check_tol tol)
{
    for (int i = 0; i < n; i++) {
        double size = tol.size ? (double)tol.size[i] : 1;
        double room = tol.rel * fabs((double)want[i]) + tol.abs * size;
        if (!close_enough(got[i], want[i], room)) {
            check_fail(c, "n %d: [%d] is %.9g, the reference %.9g, allowed %.2g apart", n, i,
                       (double)got[i], (double)want[i], room);
            return;
        }
    }
}

void check_same(check *c, const char *what, const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i]))) {
            check_fail(c, "%s: n %d: [%d] is %.9g, not %.9g to the bit", what, n, i, (double)got[i],
                       (double)want[i]);
            return;
        }
}

/* Rounds of at least a millisecond; the best one counts, since other work on the machine only
 * slows. */
enum { ROUNDS = 30 };

check_timer check_timer_start(const check *c, const char *label, double work, const char *unit)
{
    return (check_timer){.c = c, .label = label, .work = work, .unit = unit, .best = INFINITY};
}

static void print_rate(const check_timer *t)
{
    double rate = t->work / t->best * 1e-9;
    printf("%-5s %-16s %-20s %10.3f us %8.2f %s", t->c->set, t->c->kernel, t->label, t->best * 1e6,
           rate, t->unit);
    if (t->c->peak > 0 && strcmp(t->unit, "GFLOP/s") == 0)
        printf("  %3.0f %% of the peak", 100 * rate / t->c->peak);
    printf("\n");
}

bool check_timer_more(check_timer *t)
{
    if (!t->c->bench)
        return false;
    if (t->left > 0) {
        t->left--;
        return true;
    }
    double now = dg_clock_now();
    if (t->calls == 0)
        t->calls = 1;
    else if (now - t->start < 1e-3)
        t->calls *= 2;
    else {
        t->best = fmin(t->best, (now - t->start) / (double)t->calls);
        t->n_round++;
    }
    if (t->n_round == ROUNDS) {
        print_rate(t);
        return false;
    }
    t->left = t->calls - 1;
    t->start = dg_clock_now();
    return true;
}
