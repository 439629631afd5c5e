#include "diffusion/pins.h"
#include <math.h>
#include <string.h>

void dg_pins_begin(dg_pins *p, int n)
{
    p->n = p->n_agree = p->end = 0;
    memset(p->at, 0, (size_t)n);
}

bool dg_pins_start(dg_pins *p, const dg_start *start, const double *u, int32_t *canvas, int n)
{
    bool known = start->n >= n;
    p->end = start->n - start->n_padding;
    for (int i = 0; i < n && i < start->n; i++) {
        if (start->token[i] < 0) {
            known = false;
            continue;
        }
        if (start->strength == 0 || (start->pinned && start->pinned[i])) {
            p->at[i] = 1;
            p->token[i] = start->token[i];
            p->n++;
        }
        if (p->at[i] || !(u[i] < (double)start->strength))
            canvas[i] = start->token[i];
    }
    return known;
}

int dg_pins_skipped_steps(float strength, int max_steps)
{
    int skipped = (int)lroundf((float)max_steps * (1 - strength));
    return skipped < max_steps ? skipped : max_steps - 1;
}

void dg_pins_hold(const dg_pins *p, int32_t *canvas, int n)
{
    for (int i = 0; p->n && i < n; i++)
        if (p->at[i])
            canvas[i] = p->token[i];
}

void dg_pins_take(dg_pins *p, int32_t *argmax, int32_t *drawn, float *entropy, int n)
{
    p->n_agree = 0;
    p->doubt = 0;
    for (int i = 0; p->n && i < n; i++)
        if (p->at[i]) {
            p->doubt += i < p->end ? entropy[i] : 0;
            p->n_agree += argmax[i] == p->token[i];
            argmax[i] = drawn[i] = p->token[i];
            entropy[i] = 0;
        }
}
