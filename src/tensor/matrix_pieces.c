#include "tensor/matrix_pieces.h"
#include <math.h>
#include <string.h>
#include "tensor/narrowed.h"

typedef unsigned char byte;

dg_dtype dg_form_type(dg_form form, const dg_piece *piece, dg_dtype stored)
{
    switch (form) {
    case DG_FORM_E4M3:
        return DG_E4M3;
    case DG_FORM_NVFP4:
        return DG_NVFP4;
    case DG_FORM_MXFP4:
        return DG_MXFP4;
    case DG_FORM_INT8:
        return DG_BYTES;
    case DG_FORM_INT4:
    case DG_FORM_GPTQ:
    case DG_FORM_AWQ:
        return piece->scale_type == DG_F16 && (!piece->zero || piece->symmetric) ? DG_Q4_0
                                                                                 : DG_AFFINE4;
    case DG_FORM_MLX4:
        return DG_AFFINE4;
    case DG_FORM_MLX8:
        return DG_AFFINE8;
    default:
        return stored;
    }
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

/* ---- blocks and rows; false: something in them is not a number ---- */

enum { BLOCK = 64, NVFP4_GROUP = 16, MXFP4_BLOCK = 32 };

/* The block from column `first` on, whose last values may not be there. E4M3 and INT8, which differ
 * in what the bytes mean. */
static bool block_of_bytes(byte *out, const dg_piece *p, int64_t row, int64_t n_in, int64_t first,
                           bool e4m3)
{
    const byte *from = (const byte *)p->values + (size_t)(row * n_in + first);
    const size_t n = (size_t)(n_in - first < BLOCK ? n_in - first : BLOCK);
    float d;
    dg_widen(&d, scales_of(p, row) + (size_t)(first / p->scale_cols) * dg_dtype_size(p->scale_type),
             p->scale_type, 1);
    byte most = 0;
    for (size_t i = 0; i < n; i++) {
        const byte here = from[i] & 0x7F;
        most = here > most ? here : most;
    }
    memcpy(out, &d, sizeof d);
    memcpy(out + sizeof d, from, n);
    return isfinite(d) && (!e4m3 || most != 0x7F);
}

static bool block_nvfp4(byte *out, const dg_piece *p, int64_t row, int64_t n_in, int64_t first)
{
    const byte *from = (const byte *)p->values + (size_t)(row * n_in + first) / 2,
               *scale = scales_of(p, row) + first / NVFP4_GROUP;
    byte *numbers = out + BLOCK / NVFP4_GROUP;
    bool finite = true;
    for (int g = 0; g < BLOCK / NVFP4_GROUP && first + g * NVFP4_GROUP < n_in; g++) {
        out[g] = scale[g];
        finite &= scale[g] < 0x7F;
        pairs_to_halves(numbers + g * NVFP4_GROUP / 2, from + g * NVFP4_GROUP / 2, NVFP4_GROUP);
    }
    return finite;
}

static bool make_block(byte *out, dg_form form, const dg_piece *p, int64_t row, int64_t n_in,
                       int64_t first)
{
    return form == DG_FORM_NVFP4 ? block_nvfp4(out, p, row, n_in, first)
                                 : block_of_bytes(out, p, row, n_in, first, form == DG_FORM_E4M3);
}

/* Forms whose blocks have 64 values; a row that does not fill them becomes floats. */
static bool row_of_blocks(byte *out, const dg_tensor *t, const dg_piece *p, int64_t row)
{
    const dg_form form = t->pieces->form;
    const dg_dtype type = dg_form_type(form, p, t->type);
    const int64_t n = t->shape[t->n_dim - 1];
    const size_t bytes = dg_dtype_bytes(type, BLOCK);
    bool finite = true;
    if (t->type == type) {
        for (int64_t i = 0; i < n; i += BLOCK, out += bytes)
            finite &= make_block(out, form, p, row, n, i);
        return finite;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        byte block[sizeof(float) + BLOCK] = {0};
        float values[BLOCK];
        const size_t here = (size_t)(n - i < BLOCK ? n - i : BLOCK);
        finite &= make_block(block, form, p, row, n, i);
        dg_widen(values, block, type, BLOCK);
        for (size_t k = 0; k < here && form == DG_FORM_NVFP4; k++)
            values[k] *= p->factor;
        memcpy(out, values, here * sizeof *values);
        out += here * sizeof *values;
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

/* ---- whole numbers of four bits ---- */

static uint32_t word_of(const void *words, int64_t word)
{
    uint32_t w;
    memcpy(&w, (const byte *)words + (size_t)word * sizeof w, sizeof w);
    return w;
}

static int nibble_of(const void *words, int64_t word, int64_t nibble)
{
    return (int)(word_of(words, word) >> 4 * nibble & 15);
}

/* Where AWQ has an output of eight in its word. */
static const int awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* Of GPTQ or AWQ. */
static int number_of(const dg_tensor *t, const dg_piece *p, int64_t row, int64_t col)
{
    const int64_t n_out = t->shape[t->n_dim - 2];
    if (t->pieces->form == DG_FORM_GPTQ)
        return nibble_of(p->values, col / 8 * n_out + row, col % 8);
    return nibble_of(p->values, (col * n_out + row) / 8, awq_place[row % 8]);
}

/* -1: none that is known. */
static int zero_of(const dg_tensor *t, const dg_piece *p, int64_t row, int64_t group)
{
    const int64_t n_out = t->shape[t->n_dim - 2];
    if (!p->zero)
        return 8;
    if (t->pieces->form == DG_FORM_INT4)
        return nibble_of(p->zero, row / 8 * p->n_scale_col + group, row % 8);
    int64_t place = t->pieces->form == DG_FORM_AWQ ? awq_place[row % 8] : row % 8;
    uint32_t word = word_of(p->zero, (group * n_out + row) / 8);
    int stored = (int)(word >> 4 * place & 15);
    if (p->symmetric)
        return stored == 7 || stored == 8 ? 8 : -1;
    return (int)((word + 0x11111111u * (uint32_t)p->zero_less) >> 4 * place & 15);
}

static const byte *scale_of(const dg_tensor *t, const dg_piece *p, int64_t row, int64_t group)
{
    const int64_t n_out = t->shape[t->n_dim - 2];
    bool by_row = t->pieces->form == DG_FORM_INT4;
    int64_t at = by_row ? row * p->n_scale_col + group : group * n_out + row;
    return (const byte *)p->scale + (size_t)at * dg_dtype_size(p->scale_type);
}

enum { NIBBLES = 32 };

static void take_nibbles(byte *out, const dg_tensor *t, const dg_piece *p, int64_t row, int64_t col)
{
    const int64_t n_in = t->shape[t->n_dim - 1];
    if (t->pieces->form == DG_FORM_INT4) { /* words lie as their bytes do: lowest first */
        pairs_to_halves(out, (const byte *)p->values + (size_t)(row * n_in + col) / 2, NIBBLES);
        return;
    }
    for (int k = 0; k < NIBBLES / 2; k++)
        out[k] = (byte)(number_of(t, p, row, col + k) | number_of(t, p, row, col + k + NIBBLES / 2)
                                                            << 4);
}

static bool row_int4(byte *out, const dg_tensor *t, const dg_piece *p, int64_t row)
{
    const int64_t n_in = t->shape[t->n_dim - 1];
    bool finite = true;
    for (int64_t i = 0; i < n_in; i += NIBBLES) {
        const int64_t group = i / p->scale_cols;
        const byte *scale = scale_of(t, p, row, group);
        float d[2];
        dg_widen(d, scale, p->scale_type, 1);
        const int zero = zero_of(t, p, row, group);
        d[1] = d[0] * (float)zero;
        finite &= isfinite(d[0]) && isfinite(d[1]) && zero >= 0;
        const bool half = t->type == DG_Q4_0;
        memcpy(out, half ? scale : (const byte *)d, half ? 2 : sizeof d);
        out += half ? 2 : sizeof d;
        take_nibbles(out, t, p, row, i);
        out += NIBBLES / 2;
    }
    return finite;
}

/* MLX: scales and biases lie alike. A byte less 128 has a least value that is so many steps less.
 */
static bool row_mlx(byte *out, const dg_tensor *t, const dg_piece *p, int64_t row)
{
    const bool wide = t->pieces->form == DG_FORM_MLX8;
    const int64_t n_in = t->shape[t->n_dim - 1];
    const size_t size = dg_dtype_size(p->scale_type), n_byte = wide ? NIBBLES : NIBBLES / 2;
    const byte *from = (const byte *)p->values + (size_t)(row * n_in) / (wide ? 1 : 2);
    bool finite = true;
    for (int64_t i = 0; i < n_in; i += NIBBLES, from += n_byte) {
        const size_t at = (size_t)(row * p->n_scale_col + i / p->scale_cols) * size;
        float d[2];
        dg_widen(&d[0], (const byte *)p->scale + at, p->scale_type, 1);
        dg_widen(&d[1], (const byte *)p->bias + at, p->scale_type, 1);
        finite &= isfinite(d[1]) && isfinite(d[1] + 255 * d[0]); /* both ends of the range */
        const float shift = wide ? 128 * d[0] : 0;
        d[1] = -(d[1] + shift);
        memcpy(out, d, sizeof d);
        out += sizeof d;
        if (wide)
            memcpy(out, from, n_byte);
        else
            pairs_to_halves(out, from, NIBBLES);
        out += n_byte;
    }
    return finite;
}

/* Columns of a file may have been sorted by how much they matter: such are not read. */
static bool in_order(const dg_piece *p, int64_t n_in)
{
    for (int64_t i = 0; p->group && i < n_in; i++) {
        int32_t group;
        memcpy(&group, (const byte *)p->group + (size_t)i * sizeof group, sizeof group);
        if (group != i / p->scale_cols && group != -1)
            return false;
    }
    return true;
}

static bool make_row(byte *out, const dg_tensor *t, const dg_piece *p, int64_t row)
{
    const int64_t n = t->shape[t->n_dim - 1];
    switch (t->pieces->form) {
    case DG_FORM_E4M3:
    case DG_FORM_INT8:
    case DG_FORM_NVFP4:
        return row_of_blocks(out, t, p, row);
    case DG_FORM_MXFP4:
        return row_mxfp4(out, p, row, n);
    case DG_FORM_INT4:
    case DG_FORM_GPTQ:
    case DG_FORM_AWQ:
        return row_int4(out, t, p, row);
    case DG_FORM_MLX4:
    case DG_FORM_MLX8:
        return row_mlx(out, t, p, row);
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
    for (int64_t mat = 0; mat < n_mat; mat++) {
        if (!in_order(&t->pieces->piece[mat], t->shape[t->n_dim - 1]))
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "%s: matrix %lld has its columns in groups of another order (g_idx), "
                           "which are not read",
                           t->name, (long long)mat);
        for (int64_t row = first_row; row < first_row + n_row; row++, to += bytes)
            if (!make_row(to, t, &t->pieces->piece[mat], row))
                return dg_fail(err, DGEMMA_E_FORMAT,
                               "%s: row %lld of matrix %lld has a scale, a zero or a value that "
                               "cannot be",
                               t->name, (long long)row, (long long)mat);
    }
    return DGEMMA_OK;
}
