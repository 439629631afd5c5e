#include "diffusion/sampler.h"
#include <stdbool.h>

static bool comes_before(const float *entropy, int a, int b)
{
    return entropy[a] < entropy[b] || (entropy[a] == entropy[b] && a < b);
}

/* Lets order[i] sink into the heap below it: the position of the largest entropy is on top. */
static void sift_down(int *order, int n, int i, const float *entropy)
{
    for (;;) {
        int child = 2 * i + 1;
        if (child >= n)
            return;
        if (child + 1 < n && comes_before(entropy, order[child], order[child + 1]))
            child++;
        if (!comes_before(entropy, order[i], order[child]))
            return;
        int t = order[i];
        order[i] = order[child];
        order[child] = t;
        i = child;
    }
}

/* Heap sort: no memory, no recursion, n log n on any input. */
static void sort_by_entropy(int *order, const float *entropy, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n / 2 - 1; i >= 0; i--)
        sift_down(order, n, i, entropy);
    for (int last = n - 1; last > 0; last--) {
        int t = order[0];
        order[0] = order[last];
        order[last] = t;
        sift_down(order, last, 0, entropy);
    }
}

int dg_sampler_accept(uint8_t *accepted, int *order, const float *entropy, int n, float bound)
{
    sort_by_entropy(order, entropy, n);

    /* As the reference, rank by rank: the running sum in double, each prefix sum rounded to float
     * before h is taken off. Rounding may let a rank in behind one that was left out. */
    double running = 0;
    int n_accepted = 0;
    for (int i = 0; i < n; i++) {
        float h = entropy[order[i]];
        running += h;
        accepted[order[i]] = (float)running - h <= bound;
        n_accepted += accepted[order[i]];
    }
    return n_accepted;
}

void dg_sampler_renoise(int32_t *canvas, const uint8_t *accepted, const int32_t *drawn,
                        const int32_t *noise, int n)
{
    for (int i = 0; i < n; i++)
        canvas[i] = accepted[i] ? drawn[i] : noise[i];
}
