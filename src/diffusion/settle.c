#include "diffusion/settle.h"
#include <stdbool.h>
#include <string.h>

void dg_settle_begin(dg_settle *s, int n)
{
    s->n = 0;
    memset(s->run, 0, (size_t)n * sizeof *s->run);
}

int dg_settle_push(dg_settle *s, const int32_t *argmax, const float *entropy, int n, int steps,
                   float confidence)
{
    for (int i = s->n; i < n; i++) {
        bool same = argmax[i] == s->token[i];
        s->run[i] = entropy[i] < confidence ? (same ? s->run[i] : 0) + 1 : 0;
        s->token[i] = argmax[i];
    }
    while (s->n < n && s->run[s->n] >= steps)
        s->n++;
    return s->n;
}

void dg_settle_hold(const dg_settle *s, int32_t *canvas)
{
    if (s->n)
        memcpy(canvas, s->token, (size_t)s->n * sizeof *canvas);
}
