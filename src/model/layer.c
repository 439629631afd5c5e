#include "model/layer.h"

void dg_layer_run(const dg_model *m, int index, dg_kv_store *kv, const dg_activations *act,
                  dg_rows rows)
{
    dg_backend *be = m->be;
    const dg_layer *y = &m->layer[index];
    float *x = act->x;

    /* q, k, v = heads of RMSNorm(x): q and k normed and rotated, v normed; k and v are stored */
    be->qkv(be, &(dg_qkv_args){act->q, x, &y->attention, &act->rope[y->group], kv, index,
                               .first_q_row = rows.first});
    if (rows.first == rows.end)
        return;

    /* x = x + RMSNorm( Wo softmax(q K) V ) */
    be->attention(be, &(dg_attention_args){act->o, act->q, &y->attention, kv, index, rows});
    be->attention_out(be, &(dg_attention_out_args){x, act->o, &y->attention, rows});

    /* two branches from the same x: a dense MLP, and the experts that the router picks */
    be->dense(be, &(dg_dense_args){act->dense, x, &y->dense, &y->experts, &y->router, rows});
    be->route(be, &(dg_route_args){act->expert, act->expert_weight, x, &y->router, rows});
    be->experts(be, &(dg_experts_args){act->experts, x, act->expert, act->expert_weight,
                                       y->router.n_used, &y->experts, rows});

    /* x = (x + RMSNorm(dense + experts)) * layer scalar */
    be->join(be, &(dg_join_args){x, act->dense, act->experts, y->post_norm, y->scalar_encode,
                                 y->scalar_canvas, rows});
}
