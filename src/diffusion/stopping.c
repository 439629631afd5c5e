#include "diffusion/stopping.h"
#include <string.h>

void dg_stability_push(dg_stability *s, const int32_t *argmax, const int32_t *previous, int n)
{
    bool same = s->n_seen > 0 && memcmp(argmax, previous, (size_t)n * sizeof *argmax) == 0;
    s->n_equal = same ? s->n_equal + 1 : 0;
    s->n_seen++;
}

float dg_mean_entropy(const float *entropy, const uint8_t *forced, int n)
{
    double sum = 0;
    int n_free = 0;
    for (int i = 0; i < n; i++)
        if (!forced || !forced[i]) {
            sum += entropy[i];
            n_free++;
        }
    return n_free ? (float)(sum / n_free) : 0;
}

bool dg_stopping_reached(const dg_stability *s, int stability, float mean_entropy, float confidence)
{
    return s->n_equal >= stability && mean_entropy < confidence;
}
