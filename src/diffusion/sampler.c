#include "diffusion/sampler.h"
#include <string.h>

/* In whose order the entropies are; -0 is 0, and what is no number comes last. */
static uint32_t rank_of(float entropy)
{
    float h = entropy + 0.0f;
    uint32_t bits;
    memcpy(&bits, &h, sizeof bits);
    if (h != h)
        return UINT32_MAX;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* A byte at a time from the lowest on, equals in the order in which they are: the host sorts while
 * a device waits for the next canvas, and where comparing is a guess each wrong one costs more than
 * a byte. `other` is scratch of n numbers, too. */
static void sort_by_entropy(int *order, int *other, const float *entropy, int n)
{
    enum { BYTES = 4 };
    int begin[BYTES][256] = {{0}};
    for (int i = 0; i < n; i++) {
        uint32_t rank = rank_of(entropy[i]);
        order[i] = i;
        for (int b = 0; b < BYTES; b++)
            begin[b][rank >> 8 * b & 255]++;
    }
    for (int b = 0; b < BYTES; b++) { /* an even number: the last is into `order` */
        for (int v = 0, before = 0; v < 256; v++) {
            int here = begin[b][v];
            begin[b][v] = before;
            before += here;
        }
        for (int i = 0; i < n; i++)
            other[begin[b][rank_of(entropy[order[i]]) >> 8 * b & 255]++] = order[i];
        int *t = order;
        order = other;
        other = t;
    }
}

int dg_sampler_accept(uint8_t *accepted, int *order, const float *entropy, int n, float bound)
{
    sort_by_entropy(order, order + n, entropy, n);

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
