/* The model's equations a second time: in double, from the tensors of the file, without pages,
 * kernels or batches, every row looking at all others. What a pass gives is held to it layer by
 * layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "suites.h"
#include "support/tiny_model.h"

enum { MOST = 64, WIDE = 192 }; /* rows of a sequence; values of a row, in any stage */

typedef struct row {
    int32_t token;
    bool canvas;
    dg_span block;        /* the picture it belongs to, or itself */
    const float *feature; /* in place of the embedding, or NULL */
    const float *soft;    /* of the step before, or NULL */
} row;

/* One sequence, all of it at once: prompt, then a canvas. */
typedef struct plain {
    const tiny_model *t;
    dg_image_rule images;
    float encode_factor, canvas_factor; /* on top of the file's layer scalars */
    int n;
    row row[MOST];
    double x[MOST][WIDE];
    double hidden[DG_MAX_LAYER / 64][MOST][WIDE]; /* before each layer; after the last, normed */
} plain;

/* ---- small mathematics ---- */

/* A tensor as floats; the caller's (dg_free). */
static float *tensor(const plain *p, const char *name, int layer)
{
    char full[128];
    snprintf(full, sizeof full, layer < 0 ? "model.decoder.%s" : "model.decoder.layers.%2$d.%1$s",
             name, layer);
    const dg_tensor *t = dg_checkpoint_find(p->t->ck, full);
    ck_assert_msg(t != NULL, "%s", full);
    float *out = dg_array(dg_tensor_count(t), sizeof *out);
    dg_widen(out, t->data, t->type, dg_tensor_count(t));
    return out;
}

/* y = W x, W being rows [first, first + n_out) of what a tensor holds. */
static void times(const plain *p, double *y, const double *x, int n_in, int n_out, const char *name,
                  int layer, int first)
{
    float *w = tensor(p, name, layer);
    for (int o = 0; o < n_out; o++) {
        y[o] = 0;
        for (int i = 0; i < n_in; i++)
            y[o] += (double)w[(size_t)(first + o) * (size_t)n_in + (size_t)i] * x[i];
    }
    dg_free(w);
}

/* name NULL: without a weight. */
static void norm(const plain *p, double *y, const double *x, int n, const char *name, int layer)
{
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    double scale = 1 / sqrt(squares / n + (double)p->t->cfg.rms_eps);
    float *w = name ? tensor(p, name, layer) : NULL;
    for (int i = 0; i < n; i++)
        y[i] = x[i] * scale * (w ? (double)w[i] : 1);
    dg_free(w);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* down( gelu(gate x) * (up x) ) with the three tensors below `prefix`. */
static void mlp(const plain *p, double *y, const double *x, const char *prefix, int layer)
{
    const dg_config *cfg = &p->t->cfg;
    char name[64];
    double gate[WIDE], up[WIDE];
    snprintf(name, sizeof name, "%s.gate_proj.weight", prefix);
    times(p, gate, x, cfg->n_embd, cfg->n_ff, name, layer, 0);
    snprintf(name, sizeof name, "%s.up_proj.weight", prefix);
    times(p, up, x, cfg->n_embd, cfg->n_ff, name, layer, 0);
    for (int i = 0; i < cfg->n_ff; i++)
        gate[i] = gelu(gate[i]) * up[i];
    snprintf(name, sizeof name, "%s.down_proj.weight", prefix);
    times(p, y, gate, cfg->n_ff, cfg->n_embd, name, layer, 0);
}

/* ---- the stages ---- */

static void embed(plain *p, int r)
{
    const dg_config *cfg = &p->t->cfg;
    int n = cfg->n_embd;
    const row *w = &p->row[r];
    double *x = p->x[r], soft[WIDE] = {0}, told[WIDE];
    float *table = tensor(p, "embed_tokens.weight", -1);
    for (int i = 0; i < n; i++)
        x[i] = w->feature ? (double)w->feature[i]
                          : (double)table[w->token * n + i] * (double)cfg->embed_scale;
    dg_free(table);
    if (!w->canvas)
        return;
    for (int i = 0; w->soft && i < n; i++)
        soft[i] = (double)w->soft[i];
    norm(p, soft, soft, n, "self_conditioning.pre_norm.weight", -1);
    mlp(p, told, soft, "self_conditioning", -1);
    for (int i = 0; i < n; i++)
        x[i] += told[i];
    norm(p, x, x, n, NULL, -1);
}

/* Pairs (i, i + dim / 2) turn by position * theta^(-2i / dim). */
static void rotate(double *head, int position, const dg_layer_config *lc)
{
    int half = lc->head_dim / 2;
    for (int i = 0; i < lc->n_rope_pair; i++) {
        double angle = position * pow((double)lc->rope_theta, -2.0 * i / lc->head_dim);
        double a = head[i], b = head[i + half];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + half] = b * cos(angle) + a * sin(angle);
    }
}

/* Whether row r may look at row k, in words: a canvas sees itself whole and the last window - 1 of
 * the prefix; a token of the prompt sees the window up to itself, and of its picture everything
 * (WHOLE), or what lies ahead, in sliding layers (IN_WINDOW). */
static bool sees(const plain *p, int r, int k, const dg_layer_config *lc)
{
    const row *from = &p->row[r], *to = &p->row[k];
    int canvas = 0;
    while (canvas < p->n && !p->row[canvas].canvas)
        canvas++;
    if (to->canvas)
        return from->canvas;
    int at = from->canvas ? canvas : r;
    bool near = !lc->window || k > at - lc->window;
    if (from->canvas)
        return near;
    bool same = k >= from->block.first && k < from->block.end;
    if (p->images == DG_IMAGES_WHOLE)
        return same || (k <= r && near);
    return (k <= r && near) || (same && k > r && lc->window);
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void attend(plain *p, int layer, double (*q)[WIDE], double (*k)[WIDE], double (*v)[WIDE],
                   int r, double *out)
{
    const dg_layer_config *lc = &p->t->cfg.layer[layer];
    int n_head = p->t->cfg.n_head, dim = lc->head_dim, group = n_head / lc->n_kv_head;
    for (int h = 0; h < n_head; h++) {
        const double *query = q[r] + h * dim;
        int at = h / group * dim;
        double most = -1e300, sum = 0, weight[MOST] = {0};
        for (int i = 0; i < p->n; i++)
            if (sees(p, r, i, lc))
                most = fmax(most, dot(query, k[i] + at, dim));
        for (int i = 0; i < p->n; i++)
            if (sees(p, r, i, lc))
                sum += weight[i] = exp(dot(query, k[i] + at, dim) - most);
        for (int d = 0; d < dim; d++) {
            out[h * dim + d] = 0;
            for (int i = 0; i < p->n; i++)
                out[h * dim + d] += weight[i] / sum * v[i][at + d];
        }
    }
}

static void run_attention(plain *p, int layer)
{
    static double q[MOST][WIDE], k[MOST][WIDE], v[MOST][WIDE];
    const dg_layer_config *lc = &p->t->cfg.layer[layer];
    int n = p->t->cfg.n_embd, dim = lc->head_dim, n_head = p->t->cfg.n_head;
    int kv_dim = lc->n_kv_head * dim;
    for (int r = 0; r < p->n; r++) {
        double a[WIDE];
        norm(p, a, p->x[r], n, "input_layernorm.weight", layer);
        times(p, q[r], a, n, n_head * dim, "self_attn.q_proj.weight", layer, 0);
        times(p, k[r], a, n, kv_dim, "self_attn.k_proj.weight", layer, 0);
        times(p, v[r], a, n, kv_dim,
              lc->v_from_k ? "self_attn.k_proj.weight" : "self_attn.v_proj.weight", layer, 0);
        for (int h = 0; h < n_head; h++) {
            norm(p, q[r] + h * dim, q[r] + h * dim, dim, "self_attn.q_norm.weight", layer);
            rotate(q[r] + h * dim, r, lc);
        }
        for (int h = 0; h < lc->n_kv_head; h++) {
            norm(p, v[r] + h * dim, v[r] + h * dim, dim, NULL, layer);
            norm(p, k[r] + h * dim, k[r] + h * dim, dim, "self_attn.k_norm.weight", layer);
            rotate(k[r] + h * dim, r, lc);
        }
    }
    for (int r = 0; r < p->n; r++) {
        double o[WIDE], y[WIDE];
        attend(p, layer, q, k, v, r, o);
        times(p, y, o, n_head * dim, n, "self_attn.o_proj.weight", layer, 0);
        norm(p, y, y, n, "post_attention_layernorm.weight", layer);
        for (int i = 0; i < n; i++)
            p->x[r][i] += y[i];
    }
}

/* Adds weight * expert(a) to y. */
static void add_expert(const plain *p, double *y, const double *a, int layer, int expert,
                       double weight)
{
    int n = p->t->cfg.n_embd, n_ff = p->t->cfg.n_ff_expert;
    double both[WIDE], down[WIDE];
    times(p, both, a, n, 2 * n_ff, "experts.gate_up_proj", layer, 2 * n_ff * expert);
    for (int i = 0; i < n_ff; i++)
        both[i] = gelu(both[i]) * both[n_ff + i];
    times(p, down, both, n_ff, n, "experts.down_proj", layer, n * expert);
    for (int i = 0; i < n; i++)
        y[i] += weight * down[i];
}

static void run_experts(const plain *p, int layer, const double *x, double *y)
{
    const dg_config *cfg = &p->t->cfg;
    int n = cfg->n_embd, chosen[8];
    double routed[WIDE], score[WIDE], a[WIDE], sum = 0;
    float *scale = tensor(p, "router.scale", layer);
    float *expert_scale = tensor(p, "router.per_expert_scale", layer);
    norm(p, routed, x, n, NULL, layer);
    for (int i = 0; i < n; i++)
        routed[i] *= (double)scale[i] / sqrt(n);
    times(p, score, routed, n, cfg->n_expert, "router.proj.weight", layer, 0);
    for (int j = 0; j < cfg->n_expert_used; j++) {
        chosen[j] = -1;
        for (int e = 0; e < cfg->n_expert; e++) {
            bool taken = false;
            for (int k = 0; k < j; k++)
                taken = taken || chosen[k] == e;
            if (!taken && (chosen[j] < 0 || score[e] > score[chosen[j]]))
                chosen[j] = e;
        }
        sum += exp(score[chosen[j]]);
    }
    norm(p, a, x, n, "pre_feedforward_layernorm_2.weight", layer);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int j = 0; j < cfg->n_expert_used; j++)
        add_expert(p, y, a, layer, chosen[j],
                   exp(score[chosen[j]]) / sum * (double)expert_scale[chosen[j]]);
    norm(p, y, y, n, "post_feedforward_layernorm_2.weight", layer);
    dg_free(scale);
    dg_free(expert_scale);
}

static double layer_scalar(const plain *p, int layer, bool canvas)
{
    char name[128];
    float out;
    snprintf(name, sizeof name, "model.%s.layers.%d.layer_scalar",
             canvas ? "decoder" : "encoder.language_model", layer);
    const dg_tensor *t = dg_checkpoint_find(p->t->ck, name);
    ck_assert_msg(t != NULL, "%s", name);
    dg_widen(&out, t->data, t->type, 1);
    return (double)out * (double)(canvas ? p->canvas_factor : p->encode_factor);
}

static void run_feed_forward(plain *p, int layer, int r)
{
    int n = p->t->cfg.n_embd;
    double *x = p->x[r], a[WIDE], dense[WIDE], experts[WIDE];
    norm(p, a, x, n, "pre_feedforward_layernorm.weight", layer);
    mlp(p, dense, a, "mlp", layer);
    norm(p, dense, dense, n, "post_feedforward_layernorm_1.weight", layer);
    run_experts(p, layer, x, experts);
    for (int i = 0; i < n; i++)
        dense[i] += experts[i];
    norm(p, dense, dense, n, "post_feedforward_layernorm.weight", layer);
    for (int i = 0; i < n; i++)
        x[i] = (x[i] + dense[i]) * layer_scalar(p, layer, p->row[r].canvas);
}

static void run_plain(plain *p)
{
    int n_layer = p->t->cfg.n_layer;
    for (int r = 0; r < p->n; r++)
        embed(p, r);
    for (int layer = 0; layer < n_layer; layer++) {
        memcpy(p->hidden[layer], p->x, sizeof p->x);
        run_attention(p, layer);
        for (int r = 0; r < p->n; r++)
            run_feed_forward(p, layer, r);
    }
    for (int r = 0; r < p->n; r++)
        norm(p, p->hidden[n_layer][r], p->x[r], p->t->cfg.n_embd, "norm.weight", -1);
}

/* Of a canvas row, from the row behind the final norm. */
static void plain_logits(const plain *p, int r, double *logits)
{
    const dg_config *cfg = &p->t->cfg;
    times(p, logits, p->hidden[cfg->n_layer][r], cfg->n_embd, cfg->n_vocab, "embed_tokens.weight",
          -1, 0);
    double cap = (double)cfg->logit_softcap;
    for (int i = 0; cap > 0 && i < cfg->n_vocab; i++)
        logits[i] = cap * tanh(logits[i] / cap);
}

/* ---- comparing ---- */

/* Rows [first_row, …) of a pass beside the same rows of the sequence. */
typedef struct comparison {
    const plain *p;
    int first_row;
} comparison;

static void expect_close(const float *got, const double *want, int n, const char *what, int layer,
                         int r)
{
    double off = 0, size = 0;
    for (int i = 0; i < n; i++) {
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(sqrt(off) <= 5e-4 * sqrt(size)))
        ck_abort_msg("%s %d of row %d: off by %g of %g", what, layer, r, sqrt(off), sqrt(size));
}

static void compare_hidden(void *arg, int layer, const float *x, int n_row)
{
    const comparison *c = arg;
    int n = c->p->t->cfg.n_embd;
    for (int i = 0; i < n_row; i++)
        expect_close(x + (size_t)i * (size_t)n, c->p->hidden[layer][c->first_row + i], n,
                     "residual stream before layer", layer, c->first_row + i);
}

/* Entropy, arg-max and soft embedding of a row follow from its logits. */
static void compare_findings(const plain *p, const tiny_canvas *c, int i, const double *logits)
{
    enum { VOCAB = 384 };
    const dg_config *cfg = &p->t->cfg;
    double prob[VOCAB], sum = 0, entropy = 0, soft[WIDE] = {0};
    int best = 0;
    for (int v = 0; v < VOCAB; v++) {
        sum += prob[v] = exp((logits[v] - 30) / (double)0.7f);
        best = logits[v] > logits[best] ? v : best;
    }
    float *table = tensor(p, "embed_tokens.weight", -1);
    for (int v = 0; v < VOCAB; v++) {
        prob[v] /= sum;
        entropy -= prob[v] > 0 ? prob[v] * log(prob[v]) : 0;
        for (int k = 0; k < cfg->n_embd; k++)
            soft[k] += prob[v] * (double)table[v * cfg->n_embd + k] * (double)cfg->embed_scale;
    }
    dg_free(table);
    ck_assert_int_eq(c->argmax[i], best);
    double below = 0; /* the draw is the word in whose share of [0, 1) the number lies */
    for (int v = 0; v < c->drawn[i]; v++)
        below += prob[v];
    ck_assert_double_ge(c->uniform[i], below - 1e-3);
    ck_assert_double_le(c->uniform[i], below + prob[c->drawn[i]] + 1e-3);
    ck_assert_double_eq_tol((double)c->entropy[i], entropy, 1e-3);
    expect_close(c->soft + (size_t)i * (size_t)cfg->n_embd, soft, cfg->n_embd, "soft embedding", 0,
                 i);
}

/* A denoising pass behind what was encoded, with the last `n_encode` rows of the prompt in it. */
static void step_and_compare(tiny_model *t, plain *p, dg_kv_seq *seq, tiny_canvas *c, int n_encode,
                             bool first_step)
{
    static float before[MOST][WIDE];
    const dg_config *cfg = &t->cfg;
    int32_t token[MOST];
    int at = seq->n_token;
    for (int i = 0; i < n_encode; i++)
        token[i] = p->row[at + i].token;
    memcpy(before, c->soft, (size_t)c->n * (size_t)cfg->n_embd * sizeof(float));
    p->n = at + n_encode;
    for (int i = 0; i < c->n; i++)
        p->row[p->n++] = (row){.token = c->token[i],
                               .canvas = true,
                               .soft = first_step ? NULL : &before[0][0] + i * cfg->n_embd};
    run_plain(p);

    comparison same = {p, at};
    dg_taps taps = {.logits = c->logits, .hidden = compare_hidden, .hidden_arg = &same};
    dg_work work = tiny_canvas_work(c, seq, first_step);
    work.token = token;
    work.n_token = n_encode;
    dgemma_error err = {0};
    dg_pass pass = {.work = &work, .n_work = 1, .images = p->images, .taps = &taps};
    ck_assert_msg(dg_forward_run(t->forward, &pass, &err) == DGEMMA_OK, "%s", err.msg);
    for (int i = 0; i < c->n; i++) {
        double logits[384];
        plain_logits(p, at + n_encode + i, logits);
        expect_close(c->logits + (size_t)i * (size_t)cfg->n_vocab, logits, cfg->n_vocab, "logits",
                     0, at + n_encode + i);
        compare_findings(p, c, i, logits);
    }
    if (n_encode)
        return;
    /* unobserved, where the last layer leaves out what nobody needs: the same bits */
    size_t n_logit = (size_t)c->n * (size_t)cfg->n_vocab;
    float *observed = dg_array(n_logit, sizeof *observed);
    memcpy(observed, c->logits, n_logit * sizeof *observed);
    memcpy(c->soft, before, (size_t)c->n * (size_t)cfg->n_embd * sizeof(float));
    memset(c->logits, 0, n_logit * sizeof *observed);
    tiny_denoise(t, seq, c, first_step);
    ck_assert_mem_eq(c->logits, observed, n_logit * sizeof *observed);
    dg_free(observed);
}

static void start(plain *p, tiny_model *t, const char *fixture, dg_image_rule images)
{
    tiny_open(t, &(tiny_options){.fixture = fixture, .max_row = MOST, .n_thread = 2});
    ck_assert_int_eq(t->cfg.n_vocab, 384);
    ck_assert_int_le(t->cfg.n_ff, WIDE);
    memset(p, 0, sizeof *p);
    p->t = t;
    p->images = images;
    p->encode_factor = 0.75f; /* so that one cannot be taken for the other */
    p->canvas_factor = 1.25f;
    for (int i = 0; i < t->cfg.n_layer; i++) {
        t->model->layer[i].scalar_encode *= p->encode_factor;
        t->model->layer[i].scalar_canvas *= p->canvas_factor;
    }
}

/* A prompt in two pieces, the second in one pass with the canvas; then a second step, which sees
 * what the first one thought. The window is 8, the prompt three times as long. */
START_TEST(text_and_canvas_are_as_the_equations_say)
{
    static plain p;
    tiny_model t;
    start(&p, &t, "text", DG_IMAGES_WHOLE);
    int32_t *ids = tiny_ids(&t, 25, 31);
    for (int i = 0; i < 25; i++)
        p.row[i] = (row){.token = ids[i], .block = {i, i + 1}};
    dg_kv_seq seq = {0};
    tiny_canvas c;
    tiny_canvas_init(&c, &t, 13, 32);
    for (int i = 0; i < 13 * t.cfg.n_embd; i++)
        c.soft[i] = 1e3f; /* to be ignored at first */
    tiny_encode(&t, &seq, ids, 18, 18);
    step_and_compare(&t, &p, &seq, &c, 7, true);
    ck_assert_int_eq(seq.n_token, 25);
    memcpy(c.token, c.drawn, 13 * sizeof *c.token);
    step_and_compare(&t, &p, &seq, &c, 0, false);
    tiny_canvas_clear(&c);
    dg_kv_seq_clear(t.kv, &seq);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

/* A picture of 14 tokens, wider than the window, among text; both rules. Another picture follows,
 * whose features come from the middle of the same memory. */
START_TEST(pictures_are_seen_as_the_equations_say)
{
    static plain p;
    tiny_model t;
    start(&p, &t, "text", _i ? DG_IMAGES_IN_WINDOW : DG_IMAGES_WHOLE);
    enum { N = 32 };
    int n_embd = t.cfg.n_embd;
    static const dg_span pictures[] = {{5, 19}, {22, 26}};
    static const int first_feature[] = {3, 20};
    float *features = dg_array((size_t)(N * n_embd), sizeof *features);
    dg_rng_key key = {.seed = 33};
    for (int i = 0; i < N * n_embd; i++)
        features[i] = (float)(2 * dg_rng_uniform(&key, (uint32_t)i) - 1);
    int32_t *ids = tiny_ids(&t, N, 34), feature[N];
    dg_span block[N];
    for (int i = 0; i < N; i++) {
        block[i] = (dg_span){i, i + 1};
        feature[i] = -1;
        p.row[i] = (row){.token = ids[i]};
        for (size_t k = 0; k < DG_COUNT(pictures); k++)
            if (i >= pictures[k].first && i < pictures[k].end) {
                block[i] = pictures[k];
                feature[i] = first_feature[k] + i - pictures[k].first;
                p.row[i].feature = features + feature[i] * n_embd;
            }
        p.row[i].block = block[i];
    }
    p.n = N;
    run_plain(&p);
    dg_kv_seq seq = {0};
    comparison same = {&p, 0};
    dg_taps taps = {.hidden = compare_hidden, .hidden_arg = &same};
    dg_work work = {.seq = &seq,
                    .token = ids,
                    .n_token = N,
                    .block = block,
                    .feature = feature,
                    .features = features};
    dg_pass pass = {.work = &work, .n_work = 1, .images = p.images, .taps = &taps};
    dgemma_error err = {0};
    ck_assert_msg(dg_forward_run(t.forward, &pass, &err) == DGEMMA_OK, "%s", err.msg);
    tiny_canvas c;
    tiny_canvas_init(&c, &t, 9, 35);
    step_and_compare(&t, &p, &seq, &c, 0, true);
    tiny_canvas_clear(&c);
    dg_kv_seq_clear(t.kv, &seq);
    dg_free(ids);
    dg_free(features);
    tiny_close(&t);
}
END_TEST

Suite *equations_suite(void)
{
    Suite *s = suite_create("equations");
    TCase *t = tcase_create("equations");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, text_and_canvas_are_as_the_equations_say);
    tcase_add_loop_test(t, pictures_are_seen_as_the_equations_say, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
