#include "format/checkpoint_mark.h"
#include <string.h>
#include <xxhash.h>
#include "tensor/matrix_pieces.h"

/* The first, the middle and the last of them. */
static void look_at(XXH3_state_t *hash, const void *values, size_t bytes)
{
    enum { SOME = 64 };
    const unsigned char *at = values;
    const size_t n = bytes < SOME ? bytes : SOME;
    XXH3_64bits_update(hash, at, n);
    XXH3_64bits_update(hash, at + (bytes - n) / 2, n);
    XXH3_64bits_update(hash, at + (bytes - n), n);
}

/* Of a tensor in pieces, the first of each matrix's numbers, which have four bits at least. */
static void look_at_pieces(XXH3_state_t *hash, const dg_tensor *t)
{
    const int64_t n = t->n_dim > 2 ? t->shape[0] : 1;
    const size_t values = dg_tensor_count(t) / (size_t)n, bytes = values < 32 ? values / 2 : 16;
    for (int64_t i = 0; i < n; i++)
        XXH3_64bits_update(hash, t->pieces->piece[i].values, bytes);
}

uint64_t dg_checkpoint_mark(const dg_checkpoint *ck)
{
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return 0;
    XXH3_64bits_reset(hash);
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(ck, i);
        const int64_t head[] = {t->type, t->n_dim};
        XXH3_64bits_update(hash, t->name, strlen(t->name) + 1);
        XXH3_64bits_update(hash, head, sizeof head);
        XXH3_64bits_update(hash, t->shape, (size_t)t->n_dim * sizeof *t->shape);
        if (t->data)
            look_at(hash, t->data, t->bytes);
        else if (t->pieces)
            look_at_pieces(hash, t);
    }
    const uint64_t mark = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return mark;
}
