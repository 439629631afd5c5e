#include "bench/bench_picture.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "model/synthetic_tower.h"
#include "model/vision.h"

struct dg_bench_picture {
    dg_config cfg;
    dg_synthetic_tower *synthetic;
    const dg_checkpoint *ck;
    dg_backend *be; /* the session's */
    dg_vision *tower;
    dg_vision_input in;
    float *pixels, *features;
};

/* As square as whole cells allow. */
static void choose_grid(dg_vision_input *in, int n_soft, int pool)
{
    int rows = 1;
    for (int i = 1; i * i <= n_soft; i++)
        rows = n_soft % i ? rows : i;
    in->rows = rows * pool;
    in->cols = n_soft / rows * pool;
}

static dgemma_status find_tower(dg_bench_picture *p, const dg_bench_session *s, const char *shape,
                                dgemma_error *err)
{
    const dg_loaded *loaded = &s->from->loaded;
    p->cfg = *s->cfg;
    if (s->from->synthetic) {
        dgemma_status st = dg_synthetic_tower_open(&p->synthetic, &p->cfg, shape, err);
        p->ck = st ? NULL : dg_synthetic_tower_checkpoint(p->synthetic);
        return st;
    }
    p->ck = loaded->mmproj ? loaded->mmproj : loaded->checkpoint;
    return DGEMMA_OK;
}

static dgemma_status make_picture(dg_bench_picture *p, int n_soft, dgemma_error *err)
{
    const dg_vision_config *v = &p->cfg.vision;
    choose_grid(&p->in, n_soft, v->pool);
    size_t n = (size_t)p->in.rows * (size_t)p->in.cols * (size_t)(3 * v->patch * v->patch);
    p->pixels = dg_array(n, sizeof *p->pixels);
    p->features = p->be->alloc(p->be, (size_t)n_soft * (size_t)p->cfg.n_embd * sizeof *p->features);
    if (!p->pixels || !p->features)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a picture");
    dg_rng_key key = {.seed = 7};
    for (size_t i = 0; i < n; i++)
        p->pixels[i] = (float)dg_rng_uniform(&key, (uint32_t)i);
    p->in.pixels = p->pixels;
    return DGEMMA_OK;
}

dgemma_status dg_bench_picture_open(dg_bench_picture **out, const dg_bench_session *s,
                                    const char *shape, int n_soft, dgemma_error *err)
{
    dg_bench_picture *p = dg_calloc(1, sizeof *p);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    p->be = s->device;
    dgemma_status st = find_tower(p, s, shape, err);
    if (!st)
        st = dg_vision_load(&p->tower, &p->cfg, p->ck, p->be, err);
    if (!st && !p->tower)
        st = dg_fail(err, DGEMMA_E_ARG, "the model does not look at pictures");
    if (!st)
        st = make_picture(p, n_soft, err);
    if (st) {
        dg_bench_picture_close(p);
        return st;
    }
    *out = p;
    return DGEMMA_OK;
}

void dg_bench_picture_close(dg_bench_picture *p)
{
    if (!p)
        return;
    p->be->free(p->be, p->features);
    dg_vision_free(p->tower);
    dg_synthetic_tower_close(p->synthetic);
    dg_free(p->pixels);
    dg_free(p);
}

dgemma_status dg_bench_picture_look(dg_bench_picture *p, dgemma_error *err)
{
    return dg_vision_encode(p->tower, &p->in, 1, p->features, err);
}

dg_cost dg_bench_picture_cost(const dg_bench_picture *p)
{
    const dg_vision_config *v = &p->cfg.vision;
    double n = (double)p->in.rows * p->in.cols, embd = v->n_embd,
           heads = (double)v->n_head * v->head_dim, pixel = 3.0 * v->patch * v->patch;
    double layer = 4 * embd * heads + 3 * embd * v->n_ff,
           ends = pixel * embd + embd * p->cfg.n_embd / (v->pool * v->pool);
    dg_cost cost = {.ops = v->n_layer * (2 * n * layer + 4 * n * n * heads) + 2 * n * ends};
    for (size_t i = 0; i < dg_checkpoint_count(p->ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(p->ck, i);
        if (dg_vision_owns(t->name) && t->n_dim == 2)
            cost.bytes += (double)t->bytes;
    }
    return cost;
}
