#include "convert/importance_sums.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "convert/importance.h"
#include "format/gguf_write.h"

/* ---- the matrices ---- */

typedef struct place {
    const char *name; /* behind "model.decoder.layers.N." */
    size_t at;        /* in dg_layer */
} place;

#define AT(name, member)                                                                           \
    {                                                                                              \
        name, offsetof(dg_layer, member)                                                           \
    }
static const place places[] = {
    AT("self_attn.q_proj.weight", attention.q), AT("self_attn.k_proj.weight", attention.k),
    AT("self_attn.v_proj.weight", attention.v), AT("self_attn.o_proj.weight", attention.o),
    AT("mlp.gate_proj.weight", dense.gate),     AT("mlp.up_proj.weight", dense.up),
    AT("mlp.down_proj.weight", dense.down),     AT("experts.gate_up_proj", experts.gate),
    AT("experts.down_proj", experts.down),
};

static int by_weight(const void *a, const void *b)
{
    const dg_weight *x = (*(dg_importance_line *const *)a)->w,
                    *y = (*(dg_importance_line *const *)b)->w;
    return ((uintptr_t)x > (uintptr_t)y) - ((uintptr_t)x < (uintptr_t)y);
}

static bool add_line(dg_importance_sums *s, const dg_weight *w, const char *prefix,
                     const char *name)
{
    char ours[DG_GGUF_NAME];
    dg_importance_line *l = &s->line[s->n];
    const size_t n_mat = (size_t)w->n_mat, n_in = (size_t)w->n_in;
    if (!n_in)
        return true; /* a layer that takes its values from the keys */
    snprintf(ours, sizeof ours, "model.decoder.%s%s", prefix, name);
    *l = (dg_importance_line){.w = w};
    l->sum = dg_calloc(n_mat * n_in, sizeof *l->sum);
    l->count = dg_calloc(n_mat, sizeof *l->count);
    s->by_weight[s->n++] = l;
    return dg_gguf_name_of(l->name, ours) && l->sum && l->count;
}

dgemma_status dg_importance_sums_init(dg_importance_sums *s, const dg_model *m, dgemma_error *err)
{
    const size_t most = 3 + (size_t)m->cfg.n_layer * DG_COUNT(places);
    const char *self = "self_conditioning.";
    *s = (dg_importance_sums){.line = dg_calloc(most, sizeof *s->line),
                              .by_weight = dg_array(most, sizeof(void *))};
    bool ok = s->line && s->by_weight &&
              add_line(s, &m->condition.gate, self, "gate_proj.weight") &&
              add_line(s, &m->condition.up, self, "up_proj.weight") &&
              add_line(s, &m->condition.down, self, "down_proj.weight");
    for (int i = 0; ok && i < m->cfg.n_layer; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", i);
        for (size_t k = 0; ok && k < DG_COUNT(places); k++)
            ok = add_line(s, (const dg_weight *)((const char *)&m->layer[i] + places[k].at), prefix,
                          places[k].name);
    }
    if (!ok) {
        dg_importance_sums_clear(s);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for what matters of %d layers",
                       m->cfg.n_layer);
    }
    qsort(s->by_weight, s->n, sizeof(void *), by_weight);
    return DGEMMA_OK;
}

void dg_importance_sums_clear(dg_importance_sums *s)
{
    for (size_t i = 0; i < s->n; i++) {
        dg_free(s->line[i].sum);
        dg_free(s->line[i].count);
    }
    dg_free(s->line);
    dg_free(s->by_weight);
    *s = (dg_importance_sums){0};
}

void dg_importance_sums_add(void *sums, const dg_weight *w, int mat, const float *x, size_t ldx,
                            int n_row)
{
    const dg_importance_sums *s = sums;
    const dg_importance_line key = {.w = w}, *const at = &key;
    dg_importance_line *const *found =
        s->n ? bsearch(&at, s->by_weight, s->n, sizeof(void *), by_weight) : NULL;
    if (!found)
        return;
    double *sum = (*found)->sum + (size_t)mat * (size_t)w->n_in;
    (*found)->count[mat] += n_row;
    for (int r = 0; r < n_row; r++, x += ldx)
        for (int i = 0; i < w->n_in; i++)
            sum[i] += (double)x[i] * (double)x[i];
}

/* ---- as a file ---- */

static dgemma_status check_sums(const dg_importance_sums *s, dgemma_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const dg_importance_line *l = &s->line[i];
        for (size_t k = 0; k < (size_t)l->w->n_mat * (size_t)l->w->n_in; k++)
            if (!isfinite((float)l->sum[k]))
                return dg_fail(err, DGEMMA_E_INTERNAL, "inputs of %s are not finite", l->name);
    }
    return DGEMMA_OK;
}

/* Numbers to write, n at a time. */
enum { SOME = 1024 };

static void put_header(dg_gguf_writer *w, const dg_importance_sums *s,
                       const dg_importance_text *text)
{
    const dg_gguf_text name = {text->name, strlen(text->name)};
    dg_gguf_put_string(w, DG_IMPORTANCE_TYPE_KEY, DG_IMPORTANCE_TYPE);
    dg_gguf_put_strings(w, DG_IMPORTANCE_TEXTS_KEY, &name, 1);
    dg_gguf_put_int(w, DG_IMPORTANCE_CHUNKS_KEY, DG_GGUF_U32, text->n_chunk);
    dg_gguf_put_int(w, DG_IMPORTANCE_CHUNK_KEY, DG_GGUF_U32, text->chunk_tokens);
    for (size_t i = 0; i < s->n; i++) {
        const dg_weight *of = s->line[i].w;
        char sums[DG_GGUF_NAME + 16], counts[DG_GGUF_NAME + 16];
        snprintf(sums, sizeof sums, "%s" DG_IMPORTANCE_SUMS, s->line[i].name);
        snprintf(counts, sizeof counts, "%s" DG_IMPORTANCE_COUNTS, s->line[i].name);
        dg_gguf_put_tensor(
            w,
            &(dg_tensor){.name = sums, .type = DG_F32, .n_dim = 2, .shape = {of->n_mat, of->n_in}});
        dg_gguf_put_tensor(
            w, &(dg_tensor){.name = counts, .type = DG_F32, .n_dim = 2, .shape = {of->n_mat, 1}});
    }
}

static dgemma_status write_gguf(const dg_importance_sums *s, const dg_importance_text *text,
                                const char *path, bool replace, dgemma_error *err)
{
    dg_gguf_writer w;
    float some[SOME];
    dg_gguf_writer_init(&w, 0);
    put_header(&w, s, text);
    dgemma_status st = dg_gguf_writer_check(&w, path, replace, err);
    if (st) {
        dg_gguf_writer_close(&w, NULL);
        return st;
    }
    dg_gguf_writer_open(&w, path);
    for (size_t i = 0; i < s->n; i++) {
        const dg_importance_line *l = &s->line[i];
        const size_t n_mat = (size_t)l->w->n_mat, n = n_mat * (size_t)l->w->n_in;
        for (size_t k = 0; k < n; k++) {
            some[k % SOME] = (float)l->sum[k];
            if (k % SOME == SOME - 1 || k == n - 1)
                dg_gguf_write_part(&w, some, (k % SOME + 1) * sizeof *some);
        }
        for (size_t k = 0; k < n_mat; k++)
            dg_gguf_write_part(&w, &(float){(float)l->count[k]}, sizeof(float));
    }
    return dg_gguf_writer_close(&w, err);
}

static void write_int(dg_new_file *f, int64_t v)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)((uint64_t)v >> 8 * i);
    dg_new_file_write(f, bytes, sizeof bytes);
}

static void write_text(dg_new_file *f, const char *text)
{
    write_int(f, (int64_t)strlen(text));
    dg_new_file_write(f, text, strlen(text));
}

/* Means, times as many calls as there were chunks. There are no counts in this form: an expert that
 * saw nothing has ones. */
static dgemma_status write_old(const dg_importance_sums *s, const dg_importance_text *text,
                               const char *path, bool replace, dgemma_error *err)
{
    dg_new_file f;
    dgemma_status st = dg_new_file_check(path, 0, replace, err);
    if (st)
        return st;
    dg_new_file_open(&f, path, replace);
    write_int(&f, (int64_t)s->n);
    for (size_t i = 0; i < s->n; i++) {
        const dg_importance_line *l = &s->line[i];
        const size_t n_in = (size_t)l->w->n_in, n = (size_t)l->w->n_mat * n_in;
        write_text(&f, l->name);
        write_int(&f, text->n_chunk);
        write_int(&f, (int64_t)n);
        for (size_t k = 0; k < n; k++) {
            const double count = (double)l->count[k / n_in];
            const float value = (float)((count > 0 ? l->sum[k] / count : 1) * text->n_chunk);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            write_int(&f, bits);
        }
    }
    write_int(&f, text->n_chunk);
    write_text(&f, text->name);
    return dg_new_file_close(&f, err);
}

dgemma_status dg_importance_sums_write(const dg_importance_sums *s, const dg_importance_text *text,
                                       const char *path, bool replace, dgemma_error *err)
{
    const size_t len = strlen(path);
    const bool old = len > 4 && strcmp(path + len - 4, ".dat") == 0;
    dgemma_status st = check_sums(s, err);
    if (st)
        return st;
    return (old ? write_old : write_gguf)(s, text, path, replace, err);
}
