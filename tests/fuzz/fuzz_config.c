/* config.json and generation_config.json of arbitrary bytes, separated by a zero byte: what is
 * accepted keeps the promises the rest of the engine is built on. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void check_token(const dg_config *c, int id)
{
    check(id >= -1 && id < c->n_vocab);
}

static void check_layer(const dg_config *c, const dg_layer_config *l)
{
    check(l->head_dim >= 2 && l->head_dim % 2 == 0);
    check(l->n_kv_head >= 1 && c->n_head % l->n_kv_head == 0);
    check((int64_t)c->n_head * l->head_dim <= INT32_MAX);
    check(l->n_rope_pair >= 0 && l->n_rope_pair <= l->head_dim / 2);
    check(l->rope_theta >= 1 && isfinite(l->rope_theta));
    check(l->sliding ? l->window >= 1 && !l->v_from_k : l->window == 0);
}

static void check_vision(const dg_vision_config *v)
{
    check(v->n_embd >= 1 && v->n_ff >= 1 && v->n_layer >= 1 && v->n_layer <= DG_MAX_LAYER);
    check(v->n_head >= 1 && v->head_dim >= 4 && v->head_dim % 4 == 0);
    check((int64_t)v->n_head * v->head_dim <= INT32_MAX);
    check(v->patch >= 1 && (int64_t)v->patch * v->patch * 3 <= INT32_MAX);
    check(v->pool >= 1 && v->n_position >= 1 && v->max_soft >= 1);
    check(v->rms_eps > 0 && v->rope_theta >= 1 && isfinite(v->rope_theta));
}

static void check_config(const dg_config *c)
{
    check(c->n_vocab >= 1 && c->n_embd >= 1 && c->n_ff >= 1 && c->n_ff_expert >= 1);
    check(c->n_layer >= 1 && c->n_layer <= DG_MAX_LAYER);
    check(c->n_expert >= 1 && c->n_expert_used >= 1 && c->n_expert_used <= c->n_expert);
    check(c->n_context >= 1 && c->canvas_length >= 1);
    check(c->rms_eps > 0 && c->logit_softcap >= 0 && isfinite(c->logit_softcap));
    check(c->embed_scale >= 1 && isfinite(c->embed_scale));
    check(c->n_stop >= 0 && c->n_stop <= DG_MAX_STOP);
    for (int i = 0; i < c->n_stop; i++)
        check(c->stop_token[i] >= 0 && c->stop_token[i] < c->n_vocab);
    check_token(c, c->pad_token);
    check_token(c, c->bos_token);
    check_token(c, c->image_token);
    check_token(c, c->boi_token);
    check_token(c, c->eoi_token);
    for (int i = 0; i < c->n_layer; i++)
        check_layer(c, &c->layer[i]);
    if (c->vision.present)
        check_vision(&c->vision);
}

static void check_generation(const dg_generation_config *g)
{
    check(g->max_steps >= 1 && g->stability >= 0);
    check(g->t_min > 0 && g->t_max > 0 && isfinite(g->t_min) && isfinite(g->t_max));
    check(g->entropy_bound >= 0 && g->confidence >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    dg_config c;
    dgemma_error err = {0};
    dgemma_status st = dg_config_parse(&c, (const char *)data, len, "config.json", &err);
    check(st == DGEMMA_OK || (err.status == st && err.msg[0]));
    if (!st)
        check_config(&c);
    else
        c = (dg_config){.n_vocab = 384};
    if (zero) {
        dg_generation_config g;
        const char *rest = (const char *)zero + 1;
        dg_generation_config_parse(&g, &c, rest, size - len - 1, "generation_config.json", &err);
        check_generation(&g);
        check(c.n_stop >= 0 && c.n_stop <= DG_MAX_STOP);
    }
    return 0;
}
