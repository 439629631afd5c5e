#include "convert/quantize_rows.h"
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "tensor/blocks_narrow.h"
#include "tensor/matrix_pieces.h"

bool dg_rows_scratch_init(dg_rows_scratch *s, size_t n_value)
{
    s->values = dg_malloc_aligned(n_value * sizeof(float));
    s->back = dg_malloc_aligned(n_value * sizeof(float));
    s->stored = dg_malloc_aligned(n_value * sizeof(float)); /* no type takes more */
    return s->values && s->back && s->stored;
}

void dg_rows_scratch_clear(dg_rows_scratch *s)
{
    dg_free(s->values);
    dg_free(s->back);
    dg_free(s->stored);
    *s = (dg_rows_scratch){0};
}

static int64_t rows_of(const dg_tensor *t)
{
    return t->n_dim < 2 ? 1 : t->shape[t->n_dim - 2];
}

size_t dg_rows_length(const dg_planned *to)
{
    const dg_tensor *t = &to->tensor;
    return t->n_dim < 2 ? dg_tensor_count(t) : (size_t)t->shape[t->n_dim - 1];
}

/* Neighbouring rows of one matrix of one source. */
typedef struct run_of_rows {
    const dg_tensor *from;
    const dg_delta *delta;
    int64_t matrix, first, n;
} run_of_rows;

/* Those that row `at` of the file's tensor begins, at most n. */
static run_of_rows run_at(const dg_planned *to, int64_t at, int64_t n)
{
    const int64_t in_each = rows_of(to->from[0]), in_all = rows_of(&to->tensor);
    const int64_t row = at % in_all, source = row / in_each;
    run_of_rows r = {to->from[source], to->delta[source], at / in_all, row % in_each, n};
    if (r.n > in_each - r.first)
        r.n = in_each - r.first;
    return r;
}

/* As the source has them: in the file, or made of its pieces in `room`. */
static dgemma_status stored_rows(const unsigned char **out, const run_of_rows *r,
                                 unsigned char *room, dgemma_error *err)
{
    const dg_tensor *t = r->from;
    const size_t length = t->n_dim < 2 ? dg_tensor_count(t) : (size_t)t->shape[t->n_dim - 1];
    if (!t->pieces) {
        int64_t row = r->matrix * rows_of(t) + r->first;
        *out = (const unsigned char *)t->data + (size_t)row * dg_dtype_bytes(t->type, length);
        return DGEMMA_OK;
    }
    dg_pieces one = {t->pieces->form, t->pieces->piece + r->matrix};
    dg_tensor matrix = *t;
    matrix.n_dim = 2;
    matrix.shape[0] = rows_of(t);
    matrix.shape[1] = (int64_t)length;
    matrix.pieces = &one;
    *out = room;
    return dg_pieces_make(room, &matrix, r->first, r->n, err);
}

static void multiply(float *values, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        values[i] *= factor;
}

/* row += factor * sum_j b[j] * A[j], summed up in double, some columns at a time. */
static void add_to_row(float *row, const float *b, const dg_adapter_values *v, const float *a,
                       float factor)
{
    enum { SOME = 64 };
    const int n_in = v->n_in;
    for (int first = 0; first < n_in; first += SOME) {
        double sum[SOME] = {0};
        const int n = n_in - first < SOME ? n_in - first : SOME;
        for (int j = 0; j < v->rank; j++) {
            const float *line = a + (size_t)j * (size_t)n_in + first;
            for (int k = 0; k < n; k++)
                sum[k] += (double)b[j] * (double)line[k];
        }
        for (int k = 0; k < n; k++)
            row[first + k] = (float)((double)row[first + k] + (double)factor * sum[k]);
    }
}

static void add_delta(float *values, const dg_delta *d, const run_of_rows *r)
{
    const dg_adapter_values *v = &d->values;
    const size_t n_in = (size_t)v->n_in, rank = (size_t)v->rank, matrix = (size_t)r->matrix;
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t row = r->first + i - d->at;
        if (row >= 0 && row < v->n_out)
            add_to_row(values + (size_t)i * n_in,
                       v->b + (matrix * (size_t)v->n_out + (size_t)row) * rank, v,
                       v->a + matrix * rank * n_in, d->factor);
    }
}

static bool all_finite(const float *values, size_t n)
{
    float sum = 0; /* 0 times what is not finite is NaN */
    for (size_t i = 0; i < n; i++)
        sum += 0 * values[i];
    return sum == 0;
}

/* Of rows of `length` values, with a weight for each column where there are some. */
static void add_error(dg_rows_error *error, const dg_rows_scratch *s, size_t n, const float *weight,
                      size_t length)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)s->values[i], d = (double)s->back[i] - v;
        double w = weight ? (double)weight[i % length] : 1;
        off += w * d * d;
        size += w * v * v;
    }
    error->off += off;
    error->size += size;
}

static void narrow_rows(unsigned char *out, dg_dtype type, const float *values, size_t n,
                        const float *weight, size_t length)
{
    if (!weight) {
        dg_blocks_narrow(out, type, values, NULL, n);
        return;
    }
    for (size_t i = 0; i < n; i += length, out += dg_dtype_bytes(type, length))
        dg_blocks_narrow(out, type, values + i, weight, length);
}

static dgemma_status not_finite(const dg_planned *to, const run_of_rows *r, bool before,
                                dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_FORMAT,
                   before ? "%s: rows from %lld of matrix %lld have a value that is not finite"
                          : "%s: rows from %lld of matrix %lld have a value that is too large for "
                            "the type",
                   to->name, (long long)r->first, (long long)r->matrix);
}

static dgemma_status make_run(unsigned char *out, const dg_planned *to, const run_of_rows *r,
                              dg_rows_scratch *s, dg_rows_error *error, dgemma_error *err)
{
    const dg_dtype type = to->tensor.type;
    const size_t length = dg_rows_length(to), n = (size_t)r->n * length;
    const bool same = type == r->from->type && !r->from->scale && !r->delta;
    const float *weight =
        to->importance ? to->importance + (size_t)r->matrix * to->importance_step : NULL;
    const unsigned char *stored;
    dgemma_status st = stored_rows(&stored, r, s->stored, err);
    if (st)
        return st;
    dg_widen(s->values, stored, r->from->type, n);
    if (r->from->scale)
        multiply(s->values, n, r->from->scale[r->matrix]);
    for (const dg_delta *d = r->delta; d; d = d->next)
        add_delta(s->values, d, r);
    if (!all_finite(s->values, n) && !same)
        return not_finite(to, r, true, err);
    if (same)
        memcpy(out, stored, dg_dtype_bytes(type, n));
    else if (type < DG_DTYPE_FLOAT)
        dg_narrow(out, type, s->values, n);
    else
        narrow_rows(out, type, s->values, n, weight, length);
    dg_widen(s->back, out, type, n);
    if (!all_finite(s->back, n) && !same)
        return not_finite(to, r, false, err);
    if (to->tensor.n_dim > 1)
        add_error(error, s, n, weight, length);
    return DGEMMA_OK;
}

dgemma_status dg_rows_make(unsigned char *out, const dg_planned *to, int64_t first, int64_t n_row,
                           dg_rows_scratch *s, dg_rows_error *error, dgemma_error *err)
{
    const size_t bytes = dg_dtype_bytes(to->tensor.type, dg_rows_length(to));
    dgemma_status st = DGEMMA_OK;
    for (int64_t at = first; !st && at < first + n_row;) {
        run_of_rows r = run_at(to, at, first + n_row - at);
        st = make_run(out + (size_t)(at - first) * bytes, to, &r, s, error, err);
        at += r.n;
    }
    return st;
}
