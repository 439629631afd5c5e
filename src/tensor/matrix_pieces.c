#include "tensor/matrix_pieces.h"
#include <math.h>
#include <string.h>
#include "tensor/narrowed.h"

typedef unsigned char byte;

dg_dtype dg_form_type(dg_form form, dg_dtype stored)
{
    static const dg_dtype type[] = {
        [DG_FORM_E4M3] = DG_E4M3, [DG_FORM_NVFP4] = DG_NVFP4, [DG_FORM_MXFP4] = DG_MXFP4};
    return form == DG_FORM_PLAIN ? stored : type[form];
}

/* The scales of a row, as bytes. */
static const byte *scales_of(const dg_piece *p, int64_t row)
{
    size_t row_bytes = (size_t)p->n_scale_col * dg_dtype_size(p->scale_type);
    return (const byte *)p->scale + (size_t)(row / p->scale_rows) * row_bytes;
}

/* Nibbles lie in pairs, the first value low; blocks have the first half of `n` values low and the
 * second high. */
static void pairs_to_halves(byte *out, const byte *in, int n)
{
    for (int i = 0; i < n / 4; i++) {
        byte a = in[i], b = in[n / 4 + i];
        out[2 * i] = (byte)((a & 15) | (b & 15) << 4);
        out[2 * i + 1] = (byte)(a >> 4 | (b & 0xF0));
    }
}

/* ---- rows; false: something in them is not a number ---- */

enum { E4M3_BLOCK = 64, NVFP4_BLOCK = 64, NVFP4_GROUP = 16, MXFP4_BLOCK = 32 };

static bool row_e4m3(byte *out, const dg_piece *p, int64_t row, int64_t n)
{
    const byte *from = (const byte *)p->values + (size_t)row * (size_t)n,
               *scale = scales_of(p, row);
    const size_t size = dg_dtype_size(p->scale_type);
    bool finite = true;
    for (int64_t i = 0; i < n; i += E4M3_BLOCK, out += sizeof(float) + E4M3_BLOCK) {
        float d;
        dg_widen(&d, scale + (size_t)(i / p->scale_cols) * size, p->scale_type, 1);
        finite &= isfinite(d);
        for (int k = 0; k < E4M3_BLOCK; k++)
            finite &= (from[i + k] & 0x7F) != 0x7F;
        memcpy(out, &d, sizeof d);
        memcpy(out + sizeof d, from + i, E4M3_BLOCK);
    }
    return finite;
}

static bool row_nvfp4(byte *out, const dg_piece *p, int64_t row, int64_t n)
{
    const byte *from = (const byte *)p->values + (size_t)row * (size_t)n / 2,
               *scale = scales_of(p, row);
    bool finite = true;
    for (int64_t i = 0; i < n; i += NVFP4_BLOCK, from += NVFP4_BLOCK / 2) {
        for (int g = 0; g < NVFP4_BLOCK / NVFP4_GROUP; g++) {
            *out = *scale++;
            finite &= *out++ < 0x7F;
        }
        for (int g = 0; g < NVFP4_BLOCK / NVFP4_GROUP; g++, out += NVFP4_GROUP / 2)
            pairs_to_halves(out, from + g * NVFP4_GROUP / 2, NVFP4_GROUP);
    }
    return finite;
}

static bool row_mxfp4(byte *out, const dg_piece *p, int64_t row, int64_t n)
{
    const byte *from = (const byte *)p->values + (size_t)row * (size_t)n / 2,
               *scale = scales_of(p, row);
    bool finite = true;
    for (int64_t i = 0; i < n; i += MXFP4_BLOCK, from += MXFP4_BLOCK / 2) {
        *out = *scale++;
        finite &= *out++ != 0xFF;
        pairs_to_halves(out, from, MXFP4_BLOCK);
        out += MXFP4_BLOCK / 2;
    }
    return finite;
}

static bool make_row(byte *out, const dg_tensor *t, const dg_piece *p, int64_t row)
{
    const int64_t n = t->shape[t->n_dim - 1];
    switch (t->pieces->form) {
    case DG_FORM_E4M3:
        return row_e4m3(out, p, row, n);
    case DG_FORM_NVFP4:
        return row_nvfp4(out, p, row, n);
    case DG_FORM_MXFP4:
        return row_mxfp4(out, p, row, n);
    default: {
        const size_t bytes = dg_dtype_bytes(t->type, (size_t)n);
        memcpy(out, (const byte *)p->values + (size_t)row * bytes, bytes);
        return true;
    }
    }
}

dgemma_status dg_pieces_make(void *out, const dg_tensor *t, int64_t first_row, int64_t n_row,
                             dgemma_error *err)
{
    const int64_t n_mat = t->n_dim == 3 ? t->shape[0] : 1;
    const size_t bytes = dg_dtype_bytes(t->type, (size_t)t->shape[t->n_dim - 1]);
    byte *to = out;
    for (int64_t mat = 0; mat < n_mat; mat++)
        for (int64_t row = first_row; row < first_row + n_row; row++, to += bytes)
            if (!make_row(to, t, &t->pieces->piece[mat], row))
                return dg_fail(err, DGEMMA_E_FORMAT,
                               "%s: row %lld of matrix %lld has a scale or a value that is not a "
                               "number",
                               t->name, (long long)row, (long long)mat);
    return DGEMMA_OK;
}
