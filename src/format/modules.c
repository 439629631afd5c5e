#include "format/modules.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "format/modules_internal.h"

static int by_target(const void *a, const void *b)
{
    const found *x = a, *y = b;
    int order = strcmp(x->target, y->target);
    return order ? order : (x->expert > y->expert) - (x->expert < y->expert);
}

/* Matrices [first, end) are those of one tensor. */
static dgemma_status add_tensor(joining *j, size_t first, size_t end)
{
    const found *f = &j->found[first];
    dg_modules *m = j->m;
    for (size_t i = first; i < end; i++) {
        const found *g = &j->found[i];
        if (f->expert >= 0 && g->expert != (int)(i - first))
            return dg_fail(j->err, DGEMMA_E_FORMAT, "%s: %.150s: expert %d is missing", j->where,
                           f->target, (int)(i - first));
        if (g->form != f->form || g->type != f->type || g->n_out != f->n_out || g->n_in != f->n_in)
            return dg_fail(j->err, DGEMMA_E_UNSUPPORTED,
                           "%s: %.150s is [%lld, %lld] of %s and %.150s [%lld, %lld] of %s; all "
                           "experts of a layer are read in one form",
                           j->where, f->name, (long long)f->n_out, (long long)f->n_in,
                           dg_dtype_name(f->type), g->name, (long long)g->n_out, (long long)g->n_in,
                           dg_dtype_name(g->type));
        m->piece[i] = g->piece;
        m->factor[i] = g->piece.factor;
    }
    dg_tensor *t = &m->tensor[m->n_tensor];
    dg_pieces *p = &m->pieces[m->n_tensor++];
    *p = (dg_pieces){f->form, &m->piece[first]};
    *t = (dg_tensor){.name = f->target, .type = f->type, .n_dim = 2, .shape = {f->n_out, f->n_in}};
    if (f->expert >= 0) {
        t->n_dim = 3;
        t->shape[0] = (int64_t)(end - first);
        t->shape[1] = f->n_out;
        t->shape[2] = f->n_in;
    }
    /* what the file has of it takes more than an eighth of this: it cannot overflow */
    t->bytes = dg_dtype_bytes(f->type, dg_tensor_count(t));
    t->scale = f->type == DG_NVFP4 ? &m->factor[first] : NULL;
    t->pieces = p;
    return DGEMMA_OK;
}

static dgemma_status add_tensors(joining *j)
{
    qsort(j->found, j->n_found, sizeof *j->found, by_target);
    dgemma_status st = DGEMMA_OK;
    for (size_t first = 0, end; !st && first < j->n_found; first = end) {
        for (end = first + 1; end < j->n_found; end++)
            if (strcmp(j->found[end].target, j->found[first].target) != 0)
                break;
        if (j->found[first].expert < 0 && end - first > 1)
            return dg_fail(j->err, DGEMMA_E_FORMAT, "%s: %.150s and %.150s are the same weight",
                           j->where, j->found[first].name, j->found[first + 1].name);
        st = add_tensor(j, first, end);
    }
    return st;
}

static dgemma_status reserve(joining *j)
{
    size_t bytes = 0, n_found = 0; /* each expert takes bytes of a file: no overflow */
    for (size_t i = 0; i < j->n; i++) {
        bytes += strlen(j->part[i].name) + sizeof ".weight";
        n_found += dg_modules_is_stacked(&j->part[i]) ? (size_t)j->part[i].shape[0] : 1;
    }
    dg_modules *m = j->m;
    m->tensor = dg_array(j->n, sizeof *m->tensor);
    m->used = dg_calloc(j->n, sizeof *m->used);
    m->pieces = dg_array(j->n, sizeof *m->pieces);
    m->piece = dg_array(n_found, sizeof *m->piece);
    m->factor = dg_array(n_found, sizeof *m->factor);
    m->names = j->name_end = dg_malloc(bytes);
    j->found = dg_array(n_found, sizeof *j->found);
    if (!m->tensor || !m->used || !m->pieces || !m->piece || !m->factor || !m->names || !j->found)
        return dg_fail(j->err, DGEMMA_E_NOMEM, "%s: out of memory", j->where);
    return DGEMMA_OK;
}

dgemma_status dg_modules_join(dg_modules *out, const dg_tensor *part, size_t n,
                              const dg_quantisation *q, const char *where, dgemma_error *err)
{
    *out = (dg_modules){0};
    joining j = {.m = out, .part = part, .n = n, .q = q, .where = where, .err = err};
    dgemma_status st = reserve(&j);
    for (size_t i = 0; !st && i < n; i++)
        st = dg_modules_find(&j, &part[i]);
    if (!st)
        st = add_tensors(&j);
    dg_free(j.found);
    if (st)
        dg_modules_clear(out);
    return st;
}

void dg_modules_clear(dg_modules *m)
{
    dg_free(m->tensor);
    dg_free(m->used);
    dg_free(m->pieces);
    dg_free(m->piece);
    dg_free(m->factor);
    dg_free(m->names);
    *m = (dg_modules){0};
}
