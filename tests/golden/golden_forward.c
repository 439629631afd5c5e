/* Traces of kind `forward` and `vision`: single passes, every value compared. */
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "fixture.h"

/* Memory of one trace, freed together. */
typedef struct scratch {
    int32_t *prompt, *canvas, *commit;
    int n_prompt, n_canvas, n_commit;
    float *encoded, *logits, *soft;
    float *ours, *given; /* features of a picture; the given ones in the backend's memory */
    float *before;       /* logits of the step before */
    dg_kv_seq seq;
} scratch;

static void scratch_clear(fixture *fx, scratch *s)
{
    dg_kv_seq_clear(fx->kv, &s->seq);
    dg_free(s->prompt);
    dg_free(s->canvas);
    dg_free(s->commit);
    dg_free(s->encoded);
    dg_free(s->logits);
    fx->be->free(fx->be, s->soft);
    dg_free(s->ours);
    fx->be->free(fx->be, s->given);
    dg_free(s->before);
}

/* The keys or values that the cache holds of one layer, as the trace lays them out: [n_kv_head, n,
 * head_dim], the last n tokens. `page` has room for those of one page. */
static void read_cache(const fixture *fx, const dg_kv_seq *seq, int layer, bool value, int n,
                       float *page, float *out)
{
    const dg_kv_layer *l = &dg_kv_config_of(fx->kv)->layer[layer];
    size_t dim = (size_t)l->head_dim;
    int first = seq->n_token - n;
    for (int p = first; p < seq->n_token; p++) {
        if (p == first || p % DG_PAGE == 0)
            fx->be->kv_read(fx->be, dg_kv_store_of(fx->kv), layer,
                            seq->table[l->group].page[p / DG_PAGE], value, page);
        for (int h = 0; h < l->n_kv_head; h++)
            memcpy(out + ((size_t)h * (size_t)n + (size_t)(p - first)) * dim,
                   page + ((size_t)h * DG_PAGE + (size_t)(p % DG_PAGE)) * dim, dim * sizeof *out);
    }
}

static dgemma_status compare_cache(fixture *fx, const dg_kv_seq *seq, const char *prefix,
                                   dgemma_error *err)
{
    for (int layer = 0; layer < fx->cfg.n_layer; layer++)
        for (int value = 0; value < 2; value++) {
            char name[64];
            snprintf(name, sizeof name, "%s.%c.%d", prefix, value ? 'v' : 'k', layer);
            const dg_tensor *t = fixture_tensor(fx, name, DG_F32, err);
            if (!t)
                return DGEMMA_E_FORMAT;
            const dg_layer_config *lc = &fx->cfg.layer[layer];
            int kept = lc->sliding && seq->n_token > lc->window - 1 ? lc->window - 1 : seq->n_token;
            size_t n = (size_t)kept * (size_t)lc->n_kv_head * (size_t)lc->head_dim;
            size_t page = (size_t)DG_PAGE * (size_t)lc->n_kv_head * (size_t)lc->head_dim;
            float *got = dg_array(n + page, sizeof *got);
            if (!got)
                return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
            read_cache(fx, seq, layer, value, kept, got + n, got);
            dgemma_status st =
                fixture_compare(fx, name, got, n, fx->tol_encoder, &fx->worst_encoder, err);
            dg_free(got);
            if (st)
                return st;
        }
    return DGEMMA_OK;
}

/* One denoising pass of canvas.INDEX against logits.INDEX; given: processed logits to condition on,
 * or NULL. */
static dgemma_status denoise(fixture *fx, scratch *s, int index, const float *given, bool hidden,
                             dgemma_error *err)
{
    char name[32], prefix[32];
    snprintf(name, sizeof name, "canvas.%d", index);
    snprintf(prefix, sizeof prefix, "decoder.%d", index);
    dg_free(s->canvas);
    s->canvas = NULL;
    dgemma_status st = fixture_ids(fx, name, &s->canvas, &s->n_canvas, err);
    size_t n = (size_t)s->n_canvas, n_vocab = (size_t)fx->cfg.n_vocab;
    if (!st && !s->logits) {
        s->logits = dg_array(n * n_vocab, sizeof *s->logits);
        s->soft = fx->be->alloc(fx->be, n * (size_t)fx->cfg.n_embd * sizeof *s->soft);
        if (!s->logits || !s->soft)
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    if (!st && given)
        st = fixture_soften(fx, s->soft, given, s->n_canvas, err);
    if (!st)
        st = fixture_denoise(fx,
                             &(denoise_job){.seq = &s->seq,
                                            .canvas = s->canvas,
                                            .n = s->n_canvas,
                                            .soft = given ? s->soft : NULL,
                                            .logits = s->logits,
                                            .hidden = hidden ? prefix : NULL},
                             err);
    snprintf(name, sizeof name, "logits.%d", index);
    return st ? st
              : fixture_compare(fx, name, s->logits, n * n_vocab, fx->tol_logits, &fx->worst_logits,
                                err);
}

/* A tensor of logits divided by `temperature`, into s->before. */
static dgemma_status take_before(fixture *fx, scratch *s, const char *name, float temperature,
                                 dgemma_error *err)
{
    const dg_tensor *t = fixture_tensor(fx, name, DG_F32, err);
    if (!t)
        return DGEMMA_E_FORMAT;
    size_t n = dg_tensor_count(t);
    if (n != (size_t)s->n_canvas * (size_t)fx->cfg.n_vocab)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s has %zu values", name, n);
    dg_free(s->before);
    s->before = dg_array(n, sizeof *s->before);
    if (!s->before)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    memcpy(s->before, t->data, n * sizeof *s->before);
    for (size_t i = 0; i < n; i++)
        s->before[i] /= temperature;
    return DGEMMA_OK;
}

static dgemma_status encode(fixture *fx, scratch *s, const int32_t *token, int n,
                            const char *out_name, const char *hidden, dgemma_error *err)
{
    dg_free(s->encoded);
    s->encoded = dg_array((size_t)n * (size_t)fx->cfg.n_embd, sizeof *s->encoded);
    if (!s->encoded)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = fixture_encode(
        fx,
        &(encode_job){
            .seq = &s->seq, .token = token, .n = n, .encoded = s->encoded, .hidden = hidden},
        err);
    return st ? st
              : fixture_compare(fx, out_name, s->encoded, (size_t)n * (size_t)fx->cfg.n_embd,
                                fx->tol_encoder, &fx->worst_encoder, err);
}

static dgemma_status forward_trace(fixture *fx, scratch *s, dgemma_error *err)
{
    dgemma_status st = fixture_ids(fx, "prompt", &s->prompt, &s->n_prompt, err);
    if (!st)
        st = encode(fx, s, s->prompt, s->n_prompt, "encoder.prompt.out", "encoder.prompt", err);
    if (!st)
        st = compare_cache(fx, &s->seq, "cache.prompt", err);
    if (!st)
        st = denoise(fx, s, 0, NULL, true, err);
    if (!st)
        st = take_before(fx, s, "self_conditioning_logits.1", 1, err);
    if (!st)
        st = denoise(fx, s, 1, s->before, true, err);
    if (!st)
        st = fixture_ids(fx, "commit", &s->commit, &s->n_commit, err);
    if (!st)
        st = encode(fx, s, s->commit, s->n_commit, "encoder.commit.out", NULL, err);
    if (!st)
        st = compare_cache(fx, &s->seq, "cache.commit", err);
    if (!st)
        st = take_before(fx, s, "logits.1", 0.5f, err);
    return st ? st : denoise(fx, s, 2, s->before, false, err);
}

dgemma_status golden_forward(fixture *fx, dgemma_error *err)
{
    scratch s = {0};
    dgemma_status st = forward_trace(fx, &s, err);
    scratch_clear(fx, &s);
    return st;
}

/* The prompt with these features in the picture's place, then the canvas. */
static dgemma_status read_with(fixture *fx, scratch *s, const fixture_picture *p,
                               const float *features, double tol, double *worst, dgemma_error *err)
{
    dg_kv_seq_clear(fx->kv, &s->seq);
    dgemma_status st = fixture_encode(fx,
                                      &(encode_job){.seq = &s->seq,
                                                    .token = s->prompt,
                                                    .n = s->n_prompt,
                                                    .block = p->block,
                                                    .feature = p->feature,
                                                    .features = features,
                                                    .encoded = s->encoded},
                                      err);
    if (!st)
        st = fixture_compare(fx, "encoder.prompt.out", s->encoded,
                             (size_t)s->n_prompt * (size_t)fx->cfg.n_embd, tol, worst, err);
    return st ? st : denoise(fx, s, 0, NULL, false, err);
}

/* The picture through our tower; the text with the recorded features, then with ours. */
static dgemma_status vision_trace(fixture *fx, scratch *s, fixture_picture *p, dgemma_error *err)
{
    size_t n_embd = (size_t)fx->cfg.n_embd;
    dgemma_status st = fixture_ids(fx, "prompt", &s->prompt, &s->n_prompt, err);
    if (!st)
        st = fixture_picture_read(fx, p, s->prompt, s->n_prompt, err);
    if (st)
        return st;
    size_t n_value = (size_t)p->n_soft * n_embd, bytes = n_value * sizeof *s->given;
    s->encoded = dg_array((size_t)s->n_prompt * n_embd, sizeof *s->encoded);
    s->ours = dg_array(n_value, sizeof *s->ours);
    s->given = fx->be->alloc(fx->be, bytes);
    if (!s->encoded || !s->ours || !s->given)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    fx->be->download(fx->be, s->ours, p->features, bytes);
    st =
        fixture_compare(fx, "image_features", s->ours, n_value, TOL_VISION, &fx->worst_vision, err);
    if (st)
        return st;
    fx->be->upload(fx->be, s->given, fixture_tensor(fx, "image_features", DG_F32, err)->data,
                   bytes);
    st = read_with(fx, s, p, s->given, fx->tol_encoder, &fx->worst_encoder, err);
    return st ? st : read_with(fx, s, p, p->features, TOL_CARRIED, &fx->worst_carried, err);
}

dgemma_status golden_vision(fixture *fx, dgemma_error *err)
{
    scratch s = {0};
    fixture_picture p = {0};
    dgemma_status st = vision_trace(fx, &s, &p, err);
    scratch_clear(fx, &s);
    fixture_picture_clear(&p);
    snprintf(fx->note, sizeof fx->note, "image features %.1e, encoder behind them %.1e",
             fx->worst_vision, fx->worst_carried);
    return st;
}
