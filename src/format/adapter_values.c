/* A part's numbers in the order that products take them. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "format/adapter.h"

/* The rank that the shapes have for such matrices; 0: they are of others. */
static int64_t rank_of(const dg_adapter_part *p, int n_mat, int n_out, int n_in)
{
    const bool stacked = p->form == DG_ADAPTER_STACKED;
    const int64_t *a = p->a->shape, *b = p->b->shape;
    if (p->a->n_dim != 2 + stacked || p->b->n_dim != 2 + stacked)
        return 0;
    if (stacked && (a[0] != n_mat || b[0] != n_mat))
        return 0;
    a += stacked;
    b += stacked;
    if (a[1] != n_in || b[0] != n_out || a[0] != b[1])
        return 0;
    if (p->form == DG_ADAPTER_WOVEN)
        return a[0] % n_mat ? 0 : a[0] / n_mat;
    return p->form == DG_ADAPTER_PLAIN && n_mat != 1 ? 0 : a[0];
}

bool dg_adapter_fits(const dg_adapter_part *p, int n_mat, int n_out, int n_in)
{
    return rank_of(p, n_mat, n_out, n_in) > 0;
}

static dgemma_status check(const dg_adapter_part *p, int n_mat, int n_out, int n_in,
                           const char *where, dgemma_error *err)
{
    const int64_t rank = rank_of(p, n_mat, n_out, n_in);
    char a[DG_SHAPE_TEXT], b[DG_SHAPE_TEXT];
    if (!rank)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: %.80s is changed by %s and %s: the model has %d x [%d, %d]", where,
                       p->module, dg_shape_text(a, p->a->shape, p->a->n_dim),
                       dg_shape_text(b, p->b->shape, p->b->n_dim), n_mat, n_out, n_in);
    if (rank > DG_ADAPTER_RANK)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: %.80s has the rank %lld: at most %d is possible",
                       where, p->module, (long long)rank, DG_ADAPTER_RANK);
    if (p->rank && p->rank != rank)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %.80s has the rank %lld, the config says %d",
                       where, p->module, (long long)rank, p->rank);
    if (p->a->type >= DG_DTYPE_COMPUTE || p->b->type >= DG_DTYPE_COMPUTE)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: %.80s: values of type %s cannot be used",
                       where, p->module,
                       dg_dtype_name(p->a->type >= DG_DTYPE_COMPUTE ? p->a->type : p->b->type));
    return DGEMMA_OK;
}

/* Columns j * n + e of rows that are out by e: B of all experts side by side. */
static bool unweave(dg_adapter_values *v)
{
    const size_t n = (size_t)v->n_mat, rank = (size_t)v->rank, n_out = (size_t)v->n_out;
    float *b = dg_array(n * n_out, rank * sizeof *b);
    if (!b)
        return false;
    for (size_t e = 0; e < n; e++)
        for (size_t o = 0; o < n_out; o++)
            for (size_t j = 0; j < rank; j++)
                b[(e * n_out + o) * rank + j] = v->b[o * rank * n + j * n + e];
    dg_free(v->b);
    v->b = b;
    return true;
}

/* The largest of n values without its sign; NaN or infinite: one of them is. */
static double largest(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n && !isnan(most); i++)
        most = fabs((double)x[i]) <= most ? most : fabs((double)x[i]);
    return most;
}

/* Values, and what they could at most make of a weight. */
static dgemma_status check_sizes(const dg_adapter_values *v, size_t n_a, size_t n_b,
                                 const char *module, const char *where, dgemma_error *err)
{
    const double a = largest(v->a, n_a), b = largest(v->b, n_b),
                 change = fabs((double)v->factor) * v->rank * a * b;
    if (!isfinite(a) || !isfinite(b))
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %.80s: a value is not a finite number", where,
                       module);
    if (change > DG_ADAPTER_CHANGE)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: %.80s: its values, times a factor of %g, could change weights by %g; "
                       "up to %g is possible",
                       where, module, (double)v->factor, change, DG_ADAPTER_CHANGE);
    return DGEMMA_OK;
}

dgemma_status dg_adapter_read(dg_adapter_values *out, const dg_adapter_part *p, int n_mat,
                              int n_out, int n_in, const char *where, dgemma_error *err)
{
    *out = (dg_adapter_values){.n_mat = n_mat, .n_out = n_out, .n_in = n_in};
    dgemma_status st = check(p, n_mat, n_out, n_in, where, err);
    if (st)
        return st;
    out->rank = (int)rank_of(p, n_mat, n_out, n_in);
    out->factor = (float)(p->alpha / (p->root ? sqrt(out->rank) : out->rank));
    const size_t n_a = dg_tensor_count(p->a), n_b = dg_tensor_count(p->b);
    out->a = dg_array(n_a, sizeof *out->a);
    out->b = dg_array(n_b, sizeof *out->b);
    bool ok = out->a && out->b;
    if (ok) {
        dg_tensor_widen(out->a, p->a, n_a);
        dg_tensor_widen(out->b, p->b, n_b);
        st = check_sizes(out, n_a, n_b, p->module, where, err);
        ok = p->form != DG_ADAPTER_WOVEN || unweave(out);
    }
    if (!ok)
        st = dg_fail(err, DGEMMA_E_NOMEM, "%s: no memory for %.80s", where, p->module);
    if (st)
        dg_adapter_values_clear(out);
    return st;
}

void dg_adapter_values_clear(dg_adapter_values *v)
{
    dg_free(v->a);
    dg_free(v->b);
    *v = (dg_adapter_values){0};
}
