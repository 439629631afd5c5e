#include "engine/verify.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/pool.h"
#include "base/real.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "engine/probe.h"
#include "engine/published.h"

/* How many words and values of the residual stream a record keeps of each row, of how many canvases
 * it is the best, and what a reference may ask for. */
enum {
    RECORD_WORDS = 64,
    RECORD_ROWS = 8,
    RECORD_VALUES = 16,
    RECORD_TRIES = 6,
    MAX_TOKENS = 4096,
    MAX_REFERENCE = 64 << 20
};

/* A record is held to the relative distance of whole tables. */
#define RECORD_ALLOWED 0.02

/* n_layer 0: all of them. Unless told otherwise the CPU computes, with products in floats. */
static dgemma_status probe_open(dg_probe *p, const dgemma_engine_options *opt, int n_layer,
                                int n_row, dgemma_error *err)
{
    dgemma_engine_options how = *opt;
    how.device = opt->device ? opt->device : "cpu";
    how.profile = opt->profile ? opt->profile : "float";
    int n_thread;
    dgemma_status st = dg_probe_load(p, opt->model_path, n_layer, err);
    st = st ? st : dg_engine_backend(&p->be, &n_thread, &how, err);
    st = st ? st : dg_probe_start(p, dg_device_kv_type(opt->kv_type), n_row, err);
    if (st)
        dg_probe_clear(p);
    return st;
}

/* What one denoising step gives: logits of all rows, and the first values of the residual stream of
 * the first canvas row before each layer. */
typedef struct outcome {
    float *logits; /* [n_canvas, n_vocab] */
    int n_prompt, n_layer;
    float hidden[DG_MAX_LAYER + 1][RECORD_VALUES];
    int n_value, n_embd;
} outcome;

static void watch(void *arg, int layer, const float *x, int n_row)
{
    outcome *o = arg;
    (void)n_row;
    memcpy(o->hidden[layer], x + (size_t)o->n_prompt * (size_t)o->n_embd,
           (size_t)o->n_value * sizeof *x);
}

static dgemma_status step(dg_probe *b, const int32_t *prompt, int n_prompt, const int32_t *canvas,
                          int n_canvas, outcome *o, dgemma_error *err)
{
    const dg_config *cfg = &b->loaded.cfg;
    size_t n = (size_t)n_canvas;
    o->n_prompt = n_prompt;
    o->n_layer = cfg->n_layer;
    o->n_embd = cfg->n_embd;
    o->n_value = dg_min(RECORD_VALUES, cfg->n_embd);
    o->logits = dg_array(n * (size_t)cfg->n_vocab, sizeof *o->logits);
    float *soft = b->be->alloc(b->be, n * (size_t)cfg->n_embd * sizeof *soft),
          *entropy = dg_calloc(n, sizeof *entropy);
    double *uniform = dg_calloc(n, sizeof *uniform);
    int32_t *ids = dg_calloc(2 * n, sizeof *ids);
    dg_kv_seq seq = {0};
    dgemma_status st = DGEMMA_OK;
    if (!o->logits || !soft || !entropy || !uniform || !ids)
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu rows of logits", n);
    else {
        dg_work work = {.seq = &seq,
                        .token = prompt,
                        .n_token = n_prompt,
                        .canvas = canvas,
                        .n_canvas = n_canvas,
                        .soft = soft,
                        .first_step = true,
                        .temperature = 1,
                        .uniform = uniform,
                        .entropy = entropy,
                        .argmax = ids,
                        .drawn = ids + n};
        dg_taps taps = {.logits = o->logits, .hidden = watch, .hidden_arg = o};
        st = dg_forward_run(b->forward, &(dg_pass){.work = &work, .n_work = 1, .taps = &taps}, err);
    }
    dg_kv_seq_clear(b->kv, &seq);
    b->be->free(b->be, soft);
    dg_free(entropy);
    dg_free(uniform);
    dg_free(ids);
    return st;
}

/* ---- telling ---- */

typedef struct teller {
    dgemma_check_fn *fn;
    void *user;
    bool *passed;
} teller;

static void tell(const teller *t, const char *what, double error, double allowed)
{
    bool ok = error <= allowed; /* false for NaN */
    *t->passed = *t->passed && ok;
    if (t->fn)
        t->fn(t->user, &(dgemma_check){what, error, allowed, ok});
}

/* ---- published values ---- */

/* Undoes the softcap: near the cap, where tanh is flat, only there can values be compared. */
static double before_softcap(double logit)
{
    double x = fmin(fmax(logit / 30, -0.9999999), 0.9999999);
    return 15 * dg_log((1 + x) / (1 - x)); /* 30 times the inverse of tanh */
}

static dgemma_status check_published(const dgemma_engine_options *opt, const dg_published *p,
                                     const teller *t, dgemma_error *err)
{
    dg_probe b;
    int32_t canvas[DG_PUBLISHED_CANVAS];
    for (int i = 0; i < DG_PUBLISHED_CANVAS; i++)
        canvas[i] = i;
    dgemma_status st =
        probe_open(&b, opt, p->n_layer, DG_PUBLISHED_PROMPT + DG_PUBLISHED_CANVAS, err);
    if (st)
        return st;
    outcome *o = dg_calloc(1, sizeof *o);
    st = o ? step(&b, dg_published_prompt, DG_PUBLISHED_PROMPT, canvas, DG_PUBLISHED_CANVAS, o, err)
           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st) {
        double sum = 0;
        for (int r = 0; r < p->n_row; r++)
            for (int w = 0; w < p->n_word; w++) {
                double got = o->logits[(size_t)r * (size_t)b.loaded.cfg.n_vocab + (size_t)w];
                sum += fabs(before_softcap(got) - before_softcap(p->logits[r * p->n_word + w]));
            }
        char what[96];
        if (p->n_layer)
            snprintf(what, sizeof what,
                     "layers 0 to %d, final norm and head: mean distance of %d logits",
                     p->n_layer - 1, p->n_row * p->n_word);
        else
            snprintf(what, sizeof what, "all %d layers and head: mean distance of %d logits",
                     b.loaded.cfg.n_layer, p->n_row * p->n_word);
        tell(t, what, sum / (p->n_row * p->n_word), p->allowed);
    }
    if (o)
        dg_free(o->logits);
    dg_free(o);
    dg_probe_clear(&b);
    return st;
}

/* The published values fit one model alone. */
static dgemma_status check_is_released(const dgemma_engine_options *opt, dgemma_error *err)
{
    dg_loaded l;
    dgemma_status st = dg_load(&l, opt->model_path, err);
    if (st)
        return st;
    if (l.cfg.n_layer != 30 || l.cfg.n_embd != 2816 || l.cfg.n_vocab != 262144)
        st = dg_fail(err, DGEMMA_E_UNSUPPORTED,
                     "this model (%d layers, %d wide, %d words) is not the one whose values were "
                     "published; give a reference",
                     l.cfg.n_layer, l.cfg.n_embd, l.cfg.n_vocab);
    dg_loaded_clear(&l);
    return st;
}

/* ---- references as JSON ---- */

/* Ids of a JSON array, all in the vocabulary. */
static dgemma_status read_ids(const json_t *doc, const char *key, int n_vocab, int32_t *out, int *n,
                              dgemma_error *err)
{
    const json_t *list = json_object_get(doc, key);
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > MAX_TOKENS)
        return dg_fail(err, DGEMMA_E_FORMAT, "reference: %s must be a list of 1 to %d token ids",
                       key, MAX_TOKENS);
    *n = (int)json_array_size(list);
    for (int i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= n_vocab)
            return dg_fail(err, DGEMMA_E_FORMAT, "reference: %s[%d] is not a token id below %d",
                           key, i, n_vocab);
        out[i] = (int32_t)json_integer_value(v);
    }
    return DGEMMA_OK;
}

/* Adds the distance of a row of numbers to what was computed; false when it is not a row that fits.
 */
static bool add_distance(const json_t *row, const float *got, int n_max, double *off, double *size)
{
    size_t n = json_array_size(row);
    if (!json_is_array(row) || n < 1 || n > (size_t)n_max)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(row, i);
        if (!json_is_number(v))
            return false;
        double want = json_number_value(v), d = got[i] - want;
        *off += d * d;
        *size += want * want;
    }
    return true;
}

static double relative(double off, double size)
{
    return size > 0 ? sqrt(off / size) : sqrt(off);
}

/* The first layer whose input is right and whose output is not is the one that is off. */
static dgemma_status check_layers(const json_t *layers, const outcome *o, double allowed,
                                  const teller *t, dgemma_error *err)
{
    if (!json_is_array(layers) || json_array_size(layers) != (size_t)o->n_layer + 1)
        return dg_fail(err, DGEMMA_E_FORMAT, "reference: hidden must be a list of %d rows",
                       o->n_layer + 1);
    for (int i = 0; i <= o->n_layer; i++) {
        double off = 0, size = 0;
        if (!add_distance(json_array_get(layers, (size_t)i), o->hidden[i], o->n_value, &off, &size))
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "reference: hidden[%d] is not a list of at most %d numbers", i,
                           o->n_value);
        char what[48];
        if (i == 0)
            snprintf(what, sizeof what, "embedding");
        else if (i < o->n_layer)
            snprintf(what, sizeof what, "layer %d", i - 1);
        else
            snprintf(what, sizeof what, "layer %d and final norm", i - 1);
        double error = relative(off, size);
        tell(t, what, error, allowed);
        if (!(error <= allowed))
            return DGEMMA_OK; /* what follows is off because this is */
    }
    return DGEMMA_OK;
}

static dgemma_status check_logits(const json_t *logits, const outcome *o, int n_canvas, int n_vocab,
                                  double allowed, const teller *t, dgemma_error *err)
{
    size_t n = json_array_size(logits);
    if (!json_is_array(logits) || n < 1 || n > (size_t)n_canvas)
        return dg_fail(err, DGEMMA_E_FORMAT, "reference: logits must be a list of 1 to %d rows",
                       n_canvas);
    double off = 0, size = 0;
    for (size_t r = 0; r < n; r++)
        if (!add_distance(json_array_get(logits, r), o->logits + r * (size_t)n_vocab, n_vocab, &off,
                          &size))
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "reference: logits[%zu] is not a list of at most %d numbers", r,
                           n_vocab);
    char what[48];
    snprintf(what, sizeof what, "logits of %zu rows", n);
    tell(t, what, relative(off, size), allowed);
    return DGEMMA_OK;
}

static dgemma_status check_reference(const dgemma_engine_options *opt, const json_t *doc,
                                     const teller *t, dgemma_error *err)
{
    dg_probe b;
    size_t rows = json_array_size(json_object_get(doc, "prompt")) +
                  json_array_size(json_object_get(doc, "canvas"));
    dgemma_status st =
        probe_open(&b, opt, 0, rows < 2 * MAX_TOKENS ? (int)rows + 1 : 2 * MAX_TOKENS, err);
    if (st)
        return st;
    int n_vocab = b.loaded.cfg.n_vocab, n_prompt, n_canvas;
    const json_t *allow = json_object_get(doc, "allowed");
    double allowed = json_is_number(allow) ? json_number_value(allow) : RECORD_ALLOWED;
    int32_t *prompt = dg_array(2 * MAX_TOKENS, sizeof *prompt),
            *canvas = prompt ? prompt + MAX_TOKENS : NULL;
    outcome *o = dg_calloc(1, sizeof *o);
    st = prompt && o ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    st = st ? st : read_ids(doc, "prompt", n_vocab, prompt, &n_prompt, err);
    st = st ? st : read_ids(doc, "canvas", n_vocab, canvas, &n_canvas, err);
    st = st ? st : step(&b, prompt, n_prompt, canvas, n_canvas, o, err);
    const json_t *hidden = json_object_get(doc, "hidden");
    if (!st && hidden)
        st = check_layers(hidden, o, allowed, t, err);
    st = st ? st
            : check_logits(json_object_get(doc, "logits"), o, n_canvas, n_vocab, allowed, t, err);
    if (o)
        dg_free(o->logits);
    dg_free(o);
    dg_free(prompt);
    dg_probe_clear(&b);
    return st;
}

dgemma_status dg_verify_run(const dgemma_engine_options *opt, const char *reference,
                            dgemma_check_fn *on_check, void *user, bool *passed, dgemma_error *err)
{
    teller t = {on_check, user, passed};
    *passed = true;
    if (!reference) {
        dgemma_status st = check_is_released(opt, err);
        for (int i = 0; !st && *passed && i < DG_PUBLISHED_SETS; i++)
            st = check_published(opt, &dg_published_sets[i], &t, err);
        return st;
    }
    if (strlen(reference) > MAX_REFERENCE)
        return dg_fail(err, DGEMMA_E_LIMIT, "the reference is longer than %d bytes", MAX_REFERENCE);
    json_error_t bad;
    json_t *doc = json_loads(reference, JSON_REJECT_DUPLICATES, &bad);
    if (!doc)
        return dg_fail(err, DGEMMA_E_FORMAT, "reference, line %d: %s", bad.line, bad.text);
    dgemma_status st = check_reference(opt, doc, &t, err);
    json_decref(doc);
    return st;
}

/* ---- recording ---- */

static bool put_rows(dg_buf *out, const char *key, const float *x, size_t stride, int n_row,
                     int n_col)
{
    char number[64];
    bool ok = dg_buf_puts(out, key) && dg_buf_puts(out, "[");
    for (int r = 0; ok && r < n_row; r++) {
        ok = dg_buf_puts(out, r ? ",\n  [" : "\n  [");
        for (int c = 0; ok && c < n_col; c++) {
            snprintf(number, sizeof number, "%s%.9g", c ? ", " : "",
                     (double)x[(size_t)r * stride + (size_t)c]);
            ok = dg_buf_puts(out, number);
        }
        ok = ok && dg_buf_puts(out, "]");
    }
    return ok && dg_buf_puts(out, "]");
}

static bool put_ids(dg_buf *out, const char *key, const int32_t *ids, int n)
{
    char number[32];
    bool ok = dg_buf_puts(out, key) && dg_buf_puts(out, "[");
    for (int i = 0; ok && i < n; i++) {
        snprintf(number, sizeof number, "%s%d", i ? ", " : "", (int)ids[i]);
        ok = dg_buf_puts(out, number);
    }
    return ok && dg_buf_puts(out, "]");
}

/* One canvas behind one prompt, and of what a model computes for them that which a record keeps. */
typedef struct recorded {
    int32_t prompt[32], canvas[64];
    int n_prompt, n_canvas, n_layer, n_value, n_row, n_word;
    float hidden[DG_MAX_LAYER + 1][RECORD_VALUES], logits[RECORD_ROWS][RECORD_WORDS];
} recorded;

/* Words from all over the vocabulary, others for each number. */
static void choose_words(recorded *r, const dg_config *cfg, int number)
{
    enum { N_PROMPT = DG_COUNT(r->prompt), N_CANVAS = DG_COUNT(r->canvas) };
    r->n_canvas = dg_min(N_CANVAS, cfg->canvas_length);
    if (cfg->bos_token >= 0)
        r->prompt[r->n_prompt++] = cfg->bos_token;
    for (int i = 1; r->n_prompt < N_PROMPT; i++)
        r->prompt[r->n_prompt++] =
            (int32_t)((int64_t)(i + number * N_PROMPT) * 7919 % cfg->n_vocab);
    for (int i = 0; i < r->n_canvas; i++)
        r->canvas[i] = (int32_t)((int64_t)(i + 1 + number * N_CANVAS) * 104729 % cfg->n_vocab);
}

static dgemma_status record_one(dg_probe *b, recorded *r, dgemma_error *err)
{
    size_t n_vocab = (size_t)b->loaded.cfg.n_vocab;
    outcome *o = dg_calloc(1, sizeof *o);
    dgemma_status st = o ? step(b, r->prompt, r->n_prompt, r->canvas, r->n_canvas, o, err)
                         : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st) {
        r->n_layer = o->n_layer;
        r->n_value = o->n_value;
        r->n_row = dg_min(RECORD_ROWS, r->n_canvas);
        r->n_word = dg_min(RECORD_WORDS, b->loaded.cfg.n_vocab);
        memcpy(r->hidden, o->hidden, sizeof r->hidden);
        for (int i = 0; i < r->n_row; i++)
            memcpy(r->logits[i], o->logits + (size_t)i * n_vocab,
                   (size_t)r->n_word * sizeof(float));
    }
    if (o)
        dg_free(o->logits);
    dg_free(o);
    return st;
}

static dgemma_status record_some(const dgemma_engine_options *opt, recorded *some,
                                 dgemma_error *err)
{
    dg_probe b;
    dgemma_status st = probe_open(&b, opt, 0, 512, err);
    if (st)
        return st;
    for (int i = 0; !st && i < RECORD_TRIES; i++) {
        some[i] = (recorded){0};
        choose_words(&some[i], &b.loaded.cfg, i);
        st = record_one(&b, &some[i], err);
    }
    dg_probe_clear(&b);
    return st;
}

static double distance(const float *a, const float *b, int n)
{
    double off = 0, size = 0;
    for (int i = 0; i < n; i++) {
        off += (a[i] - b[i]) * (a[i] - b[i]);
        size += a[i] * a[i];
    }
    return relative(off, size);
}

/* The largest of the distances that a record is held to. */
static double largest_distance(const recorded *a, const recorded *b)
{
    double most = 0;
    for (int i = 0; i <= a->n_layer; i++)
        most = fmax(most, distance(a->hidden[i], b->hidden[i], a->n_value));
    for (int i = 0; i < a->n_row; i++)
        most = fmax(most, distance(a->logits[i], b->logits[i], a->n_word));
    return most;
}

static bool put_recorded(dg_buf *out, const recorded *r)
{
    return put_ids(out, "{\"prompt\": ", r->prompt, r->n_prompt) &&
           put_ids(out, ",\n \"canvas\": ", r->canvas, r->n_canvas) &&
           put_rows(out, ",\n \"hidden\": ", r->hidden[0], RECORD_VALUES, r->n_layer + 1,
                    r->n_value) &&
           put_rows(out, ",\n \"logits\": ", r->logits[0], RECORD_WORDS, r->n_row, r->n_word) &&
           dg_buf_puts(out, "}\n");
}

/* What a canvas comes to may hang on the last bit of a key, where two experts are as good as each
 * other. A record is for others, whose last bits differ: it is made of that canvas of several which
 * keys and values of the other type change least. */
dgemma_status dg_verify_record(const dgemma_engine_options *opt, dg_buf *out, dgemma_error *err)
{
    dgemma_engine_options other = *opt;
    other.kv_type = opt->kv_type == DGEMMA_KV_F32 ? DGEMMA_KV_BF16 : DGEMMA_KV_F32;
    recorded *own = dg_array(2 * RECORD_TRIES, sizeof *own), *beside = own + RECORD_TRIES;
    dgemma_status st =
        own ? record_some(opt, own, err) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    st = st ? st : record_some(&other, beside, err);
    int best = 0;
    for (int i = 1; !st && i < RECORD_TRIES; i++)
        if (largest_distance(&own[i], &beside[i]) < largest_distance(&own[best], &beside[best]))
            best = i;
    if (!st && !put_recorded(out, &own[best]))
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for the reference");
    dg_free(own);
    return st;
}
