#include "vocabulary_bench.h"
#include <check.h>
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"

float normal(uint32_t i, uint32_t stream)
{
    dg_rng_key key = {.seed = 9, .stream = stream};
    double u = dg_rng_uniform(&key, 2 * i) + 1e-12, v = dg_rng_uniform(&key, 2 * i + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

dg_backend *open_backend(unsigned flags, int n_thread, int n_row, int n_embd)
{
    dgemma_error err = {0};
    dg_backend *be = NULL;
    dg_cpu_options opt = {n_thread, flags, false};
    ck_assert_msg(dg_cpu_open(&be, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    dg_plan plan = {.n_row = n_row,
                    .n_embd = n_embd,
                    .n_ff = 1,
                    .n_vocab = N_VOCAB,
                    .max_head_dim = 2,
                    .max_group = 1,
                    .n_expert = 1,
                    .n_expert_used = 1,
                    .n_ff_expert = 1,
                    .rms_eps = 1e-6f};
    ck_assert_int_eq(be->plan(be, &plan, &err), DGEMMA_OK);
    return be;
}

void bench_open(bench *b, bool reference, int n_thread, float strength)
{
    memset(b, 0, sizeof *b);
    dgemma_error err = {0};
    b->be = open_backend(reference ? 0 : dg_cpu_flags(), n_thread, N_ROW, N_EMBD);
    b->embed = dg_array(N_VOCAB * N_EMBD, sizeof *b->embed);
    b->stored = dg_array(N_VOCAB * N_EMBD, sizeof *b->stored);
    b->logits = dg_array((size_t)N_ROW * N_VOCAB, sizeof *b->logits);
    for (uint32_t i = 0; i < N_VOCAB * N_EMBD; i++) {
        b->stored[i] = dg_float_to_bf16(normal(i, 0));
        b->embed[i] = dg_bf16_to_float(b->stored[i]);
    }
    dg_tensor t = {.name = "embed",
                   .type = DG_BF16,
                   .n_dim = 2,
                   .shape = {N_VOCAB, N_EMBD},
                   .data = b->stored};
    dg_weight_source from = {&t, DG_ROLE_EMBED, -1, 0, N_VOCAB};
    ck_assert_int_eq(b->be->weight_init(b->be, &b->table, &from, &err), DGEMMA_OK);
    for (uint32_t i = 0; i < N_ROW * N_EMBD; i++)
        b->x[i] = strength * normal(i, 1);
    for (uint32_t r = 0; r < N_ROW; r++) {
        b->temperature[r] = 0.4f + 0.05f * (float)r;
        b->uniform[r] = dg_rng_uniform(&(dg_rng_key){.seed = 4}, r);
    }
}

void bench_close(bench *b)
{
    b->be->close(b->be);
    dg_free(b->embed);
    dg_free(b->stored);
    dg_free(b->logits);
}

dgemma_status bench_run(bench *b, int first, int n, float softcap, const float *given,
                        dgemma_error *err)
{
    dg_segment seg[N_ROW]; /* each row has its own temperature */
    for (int i = 0; i < n; i++)
        seg[i] = (dg_segment){.canvas = true,
                              .first_row = i,
                              .n_row = 1,
                              .soft = b->soft + (first + i) * N_EMBD,
                              .temperature = b->temperature[first + i],
                              .options = b->options[first + i]};
    dg_batch batch = {.n_row = n,
                      .n_segment = n,
                      .segment = seg,
                      .uniform = b->uniform + first,
                      .given = given,
                      .out = {
                          .logits = given ? NULL : b->logits + (size_t)first * N_VOCAB,
                          .entropy = b->entropy + first,
                          .argmax = b->argmax + first,
                          .drawn = b->drawn + first,
                          .logprob = b->logprob + first,
                          .top_id = b->top_id + first * DG_MAX_TOP,
                          .top_logprob = b->top_logprob + first * DG_MAX_TOP,
                      }};
    b->be->begin(b->be, &batch);
    b->be->vocabulary(b->be, &(dg_vocabulary_args){.x = b->x + first * N_EMBD,
                                                   .table = &b->table,
                                                   .softcap = softcap,
                                                   .soft_scale = 3});
    return b->be->finish(b->be, err);
}
