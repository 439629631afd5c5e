#include "engine/infill.h"
#include "base/common.h"

int dg_infill_positions(const dg_infill *f, int length, int n_canvas)
{
    bool closed = f->whole && f->close >= 0;
    return closed && f->pad >= 0 ? n_canvas
                                 : dg_min(f->n_before + length + f->n_after + closed, n_canvas);
}

dg_start dg_infill_start(const dg_infill *f, int length, int n, int32_t *token, uint8_t *pinned)
{
    for (int i = 0; i < n; i++) {
        int at = i - f->n_before, behind = at - length;
        pinned[i] = at < 0 || behind >= 0;
        if (at < 0)
            token[i] = f->before[i];
        else if (behind < 0)
            token[i] = f->known ? f->known[at] : -1;
        else
            token[i] = behind < f->n_after    ? f->after[behind]
                       : behind == f->n_after ? f->close
                                              : f->pad;
    }
    return (dg_start){.token = token,
                      .pinned = pinned,
                      .n = n,
                      .n_padding = dg_max(0, n - f->n_before - length - f->n_after - 1),
                      .strength = f->strength};
}

int dg_infill_seen(const dg_infill *f, const int32_t *text, int length)
{
    enum { LOOKED_AT = 8, ENOUGH = 3 };
    int n = dg_min(f->n_after + (f->whole && f->close >= 0), LOOKED_AT);
    int best = 0, most = dg_min(n, ENOUGH) - 1;
    if (n == 1 && f->n_after) /* one word may stand anywhere */
        return 0;
    for (int at = 1; n && at < length; at++) {
        int equal = 0;
        for (int i = 0; i < n && at + i < length; i++)
            equal += text[at + i] == (i < f->n_after ? f->after[i] : f->close);
        if (equal > most) {
            most = equal;
            best = at;
        }
    }
    return best;
}

float dg_infill_agreement(const dg_infill *f, const dg_pins *pins)
{
    int n = f->n_before + f->n_after + (f->whole && f->close >= 0),
        wrong = dg_min(pins->n - pins->n_agree, n);
    return n ? 1 - (float)wrong / (float)n : 1;
}
