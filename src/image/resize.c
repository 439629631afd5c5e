/* Resizing: rows first, columns second, each rounded to bytes.
 *
 * The rows of the source are taken eight at a time and laid side by side, so that one weight meets
 * 24 neighbouring bytes; what comes out waits in a ring until the column's filter has passed. */
#include "image/resize.h"
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

enum {
    BATCH = 8,          /* source rows taken together */
    LANES = 3 * BATCH,  /* their bytes at one column */
    MAX_PRECISION = 22, /* bits behind the point of a weight, as in PyTorch */
    WEIGHT_LIMIT = 1 << 15
};

/* ---- the filter of one axis ---- */

typedef struct axis {
    int n_in, n_out;
    int n_max;  /* weights kept for each output */
    int *first; /* [n_out] of the source */
    int *count; /* [n_out] */
    int16_t *w; /* [n_out, n_max], of 2^precision */
    int precision;
} axis;

static void axis_clear(axis *a)
{
    dg_free(a->first);
    dg_free(a->count);
    dg_free(a->w);
    *a = (axis){0};
}

/* Keys' kernel with a = -0.5, as in Pillow. */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* The weights of output i, which add up to 1, into w; returns how many. */
static int weigh(const axis *a, int i, int *first, double *w)
{
    const double scale = (double)a->n_in / a->n_out, wide = scale > 1 ? scale : 1;
    const double support = 2 * wide, centre = scale * (i + 0.5);
    const int lo = dg_max((int)(centre - support + 0.5), 0);
    const int hi = dg_min((int)(centre + support + 0.5), a->n_in);
    const int n = dg_min(dg_max(hi - lo, 0), a->n_max);
    double sum = 0;
    for (int j = 0; j < n; j++) {
        w[j] = cubic((j + lo - centre + 0.5) * (1 / wide));
        sum += w[j];
    }
    for (int j = 0; sum != 0 && j < n; j++)
        w[j] /= sum;
    *first = lo;
    return n;
}

/* As many bits as keep the largest weight within 16. */
static int choose_precision(double largest)
{
    int p = 0;
    while (p < MAX_PRECISION && (int)(0.5 + largest * (1 << (p + 1))) < WEIGHT_LIMIT)
        p++;
    return p;
}

static void fill_weights(axis *a, double *w)
{
    double largest = 0;
    for (int i = 0; i < a->n_out; i++) {
        a->count[i] = weigh(a, i, &a->first[i], w);
        for (int j = 0; j < a->count[i]; j++)
            largest = w[j] > largest ? w[j] : largest;
    }
    a->precision = choose_precision(largest);
    const double one = 1 << a->precision;
    for (int i = 0; i < a->n_out; i++) {
        weigh(a, i, &a->first[i], w);
        int16_t *row = a->w + (size_t)i * (size_t)a->n_max;
        for (int j = 0; j < a->count[i]; j++)
            row[j] = (int16_t)(w[j] * one + (w[j] < 0 ? -0.5 : 0.5));
    }
}

static bool axis_init(axis *a, int n_in, int n_out)
{
    const double scale = (double)n_in / n_out;
    *a = (axis){.n_in = n_in, .n_out = n_out};
    a->n_max = (int)ceil(2 * (scale > 1 ? scale : 1)) * 2 + 1;
    a->first = dg_array((size_t)n_out, sizeof *a->first);
    a->count = dg_array((size_t)n_out, sizeof *a->count);
    a->w = dg_array((size_t)n_out * (size_t)a->n_max, sizeof *a->w);
    double *w = dg_array((size_t)a->n_max, sizeof *w);
    const bool ok = a->first && a->count && a->w && w;
    if (ok)
        fill_weights(a, w);
    else
        axis_clear(a);
    dg_free(w);
    return ok;
}

static uint8_t round_to_byte(int32_t sum, int precision)
{
    const int32_t v = sum >> precision; /* half was added before */
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* ---- rows ---- */

typedef struct resizer {
    const dg_image *img;
    axis x, y;
    int n_ring;       /* rows in the ring: what a column's filter spans, and a batch */
    int n_done;       /* source rows that have been narrowed */
    uint8_t *columns; /* [img->width, 3, BATCH] */
    uint8_t *ring;    /* [n_ring, x.n_out, 3] */
    int32_t *sums;    /* [x.n_out * 3] */
} resizer;

static uint8_t *ring_row(const resizer *r, int y)
{
    return r->ring + (size_t)(y % r->n_ring) * (size_t)r->x.n_out * 3;
}

/* Eight rows side by side; past the last one, that one again. */
static void lay_columns(const resizer *r, int y)
{
    const size_t n = (size_t)r->img->width * 3;
    const uint8_t *row[BATCH];
    for (int k = 0; k < BATCH; k++)
        row[k] = r->img->rgb + (size_t)dg_min(y + k, r->img->height - 1) * n;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < BATCH; k++)
            r->columns[i * BATCH + (size_t)k] = row[k][i];
}

static void narrow_column(uint8_t out[LANES], const uint8_t *src, const int16_t *w, int n,
                          int precision)
{
    int32_t sum[LANES];
    for (int l = 0; l < LANES; l++)
        sum[l] = 1 << (precision - 1);
    for (int j = 0; j < n; j++, src += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (int16_t)src[l] * w[j];
    for (int l = 0; l < LANES; l++)
        out[l] = round_to_byte(sum[l], precision);
}

static void narrow_batch(const resizer *r, int y)
{
    const axis *a = &r->x;
    const int n_row = dg_min(BATCH, r->img->height - y);
    lay_columns(r, y);
    uint8_t *row[BATCH];
    for (int k = 0; k < n_row; k++)
        row[k] = ring_row(r, y + k);
    for (int i = 0; i < a->n_out; i++) {
        uint8_t out[LANES];
        narrow_column(out, r->columns + (size_t)a->first[i] * LANES,
                      a->w + (size_t)i * (size_t)a->n_max, a->count[i], a->precision);
        for (int k = 0; k < n_row; k++)
            for (int c = 0; c < 3; c++)
                row[k][3 * i + c] = out[c * BATCH + k];
    }
}

/* Source rows up to y, without it, are in the ring at the new width. */
static void narrow_rows(resizer *r, int y)
{
    const size_t stride = (size_t)r->img->width * 3;
    while (r->n_done < y) {
        const int n_row = dg_min(BATCH, r->img->height - r->n_done);
        if (r->x.n_in != r->x.n_out)
            narrow_batch(r, r->n_done);
        else
            for (int k = 0; k < n_row; k++)
                memcpy(ring_row(r, r->n_done + k), r->img->rgb + (size_t)(r->n_done + k) * stride,
                       stride);
        r->n_done += n_row;
    }
}

/* ---- columns ---- */

static void add_row(int32_t *restrict sum, const uint8_t *restrict row, int16_t w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (int16_t)row[i] * w;
}

static void write_row(resizer *r, uint8_t *out, int i)
{
    const axis *a = &r->y;
    const size_t n = (size_t)r->x.n_out * 3;
    if (a->n_in == a->n_out) {
        narrow_rows(r, i + 1);
        memcpy(out, ring_row(r, i), n);
        return;
    }
    const int16_t *w = a->w + (size_t)i * (size_t)a->n_max;
    narrow_rows(r, a->first[i] + a->count[i]);
    for (size_t k = 0; k < n; k++)
        r->sums[k] = 1 << (a->precision - 1);
    for (int j = 0; j < a->count[i]; j++)
        add_row(r->sums, ring_row(r, a->first[i] + j), w[j], n);
    for (size_t k = 0; k < n; k++)
        out[k] = round_to_byte(r->sums[k], a->precision);
}

static bool resizer_init(resizer *r, const dg_image *img, int width, int height)
{
    *r = (resizer){.img = img};
    if (!axis_init(&r->x, img->width, width) || !axis_init(&r->y, img->height, height))
        return false;
    r->n_ring = r->y.n_max + BATCH;
    r->columns = dg_array((size_t)img->width, LANES);
    r->ring = dg_array((size_t)r->n_ring * (size_t)width, 3);
    r->sums = dg_array((size_t)width * 3, sizeof *r->sums);
    return r->columns && r->ring && r->sums;
}

static void resizer_clear(resizer *r)
{
    axis_clear(&r->x);
    axis_clear(&r->y);
    dg_free(r->columns);
    dg_free(r->ring);
    dg_free(r->sums);
}

dgemma_status dg_image_resize(uint8_t *out, int width, int height, const dg_image *img,
                              dgemma_error *err)
{
    resizer r;
    dgemma_status st = DGEMMA_OK;
    if (resizer_init(&r, img, width, height)) {
        for (int i = 0; i < height; i++)
            write_row(&r, out + (size_t)i * (size_t)width * 3, i);
    } else {
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory to resize a picture of %d x %d",
                     img->width, img->height);
    }
    resizer_clear(&r);
    return st;
}
