/* Products on quantised weights with AVX2: two products of bytes at a time are added to 16 bits
 * (VPMADDUBSW), two of those to 32. */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "cpu/x86/kernels_avx2.h"
#include "cpu/x86/lanes_avx2.h"
#include "cpu/x86/pack_x86.h"

enum { WIDTH = 8 /* columns of a register */, ROWS = 4 /* of a tile */ };

/* ---- activations ---- */

/* Bits of magnitudes are ordered like the numbers; infinity and NaN are the largest. */
INLINE int32_t largest_of(const float *x, int n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8)
        most = _mm256_max_epi32(
            most, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), magnitude));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return _mm_cvtsi128_si32(m);
}

/* The sum of the first eight: as distances from -128. */
INLINE int sum_of_bytes(__m128i n)
{
    __m128i far = _mm_sad_epu8(_mm_xor_si128(n, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(far) - 8 * 128;
}

/* How n values become numbers. */
typedef struct measure {
    float inverse, step;
    bool some;
} measure;

INLINE measure measure_of(const float *x, int n)
{
    int32_t bits = largest_of(x, n);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    bool finite = bits < 0x7F800000, some = finite && largest >= 0x1p-100f;
    return (measure){some ? 127 / largest : 0, some ? largest / 127 : finite ? 0 : NAN, some};
}

/* Eight numbers; returns their sum. */
INLINE int set_eight(int8_t to[8], const float *x, const measure *m)
{
    __m256i n = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(m->inverse)));
    n = m->some ? n : _mm256_setzero_si256();
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1)),
            bytes = _mm_packs_epi16(words, words);
    _mm_storel_epi64((__m128i *)to, bytes);
    return sum_of_bytes(bytes);
}

INLINE void set_block(dg_qpair *out, int which, const float *x)
{
    const measure m = measure_of(x, DG_QBLOCK);
    const float step = m.step;
    int sum[2] = {0, 0};
    for (int i = 0; i < 4; i++)
        sum[i / 2] += set_eight(out->n[i][which], x + 8 * i, &m);
    for (int i = 0; i < 2; i++) {
        out->step[which][i] = step;
        out->sum[which][i] = step * (float)(sum[0] + sum[1]);
        out->bias[which][i] = -128 * sum[i];
    }
}

void dg_quantise_avx2(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b++)
        set_block(&out[b], which, x + b * DG_QBLOCK);
}

void dg_quantise_super_avx2(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b += DG_QBLOCKS, out += DG_QSUPER, x += DG_QSLICE) {
        dg_qsuper *to = (dg_qsuper *)out;
        const measure m = measure_of(x, DG_QSLICE);
        int sum[DG_QGROUPS] = {0};
        for (int i = 0; i < DG_QSLICE / 8; i++)
            sum[i / 2] += set_eight(to->n[i][which], x + 8 * i, &m);
        dg_qsuper_sums(to, which, sum, m.step);
    }
}

/* ---- weights ---- */

/* Numbers are made unsigned, except those of a whole byte. */
INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                       dg_numbers_fn *row)
{
    pack_columns(panel, a, type, kind, row == row_e4m3 ? row_e4m3_avx2 : row,
                 panel->most > 255 ? 0 : panel->up);
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- the product ---- */

/* What is constant in each of the functions that are made below. */
typedef struct form {
    dg_qkind kind;
    int per; /* sums of two products of which 16 bits hold the sum; 0: numbers are signed bytes */
} form;

/* One row of x: its blocks, and which row of the pair it is. */
typedef struct line {
    const dg_qpair *x;
    int which;
} line;

INLINE __m256i four_of(const line *l, int four)
{
    int32_t bytes;
    memcpy(&bytes, &l->x->n[four / 2][l->which][four % 2 * 4], sizeof bytes);
    return _mm256_set1_epi32(bytes);
}

/* sum[r] = the products of `count` fours from the first on, for `rows` rows. The instruction takes
 * one side unsigned: signed weights give their sign to x, which leaves room for two products in 16
 * bits (2 * 128 * 127 < 2^15). */
INLINE void sum_fours(__m256i sum[ROWS], const line l[ROWS], const uint8_t *n, const int first,
                      const int count, const int per, const int rows)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const int run = per ? per : 1;
#pragma GCC unroll 8
    for (int i = 0; i < count; i += run) {
        __m256i twos[ROWS];
#pragma GCC unroll 8
        for (int k = i; k < i + run; k++) {
            const __m256i w = _mm256_load_si256((const __m256i *)(n + (first + k) * 4 * DG_QCOLS)),
                          size = _mm256_abs_epi8(w);
            for (int r = 0; r < rows; r++) {
                const __m256i x = four_of(&l[r], first + k),
                              t = per ? _mm256_maddubs_epi16(w, x)
                                      : _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w));
                twos[r] = k == i ? t : _mm256_add_epi16(twos[r], t);
            }
        }
        for (int r = 0; r < rows; r++) {
            const __m256i t = _mm256_madd_epi16(twos[r], ones);
            sum[r] = i ? _mm256_add_epi32(sum[r], t) : t;
        }
    }
}

/* Takes off what making the weights unsigned added, of one half of the block or both; `shift` makes
 * it out of 128 times the sum of x. */
INLINE __m256i lowered(__m256i sum, const line *l, int half, bool both, __m128i shift)
{
    const int32_t *bias = l->x->bias[l->which];
    const __m256i by = _mm256_set1_epi32(both ? bias[0] + bias[1] : bias[half]);
    return _mm256_add_epi32(sum, _mm256_sra_epi32(by, shift));
}

/* Takes off least values times sums of x. */
INLINE void take_least(__m256 y[ROWS], const line l[ROWS], const float *least, const form f,
                       const int rows)
{
    for (int r = 0; r < rows && f.kind == DG_Q_LEAST; r++)
        y[r] = _mm256_fnmadd_ps(_mm256_load_ps(least), _mm256_set1_ps(l[r].x->sum[l[r].which][0]),
                                y[r]);
}

/* Half h of a block, or all of it, times its steps, added to the half before it. */
INLINE void add_half(__m256 part[ROWS], const line l[ROWS], const uint8_t *n, const float *step,
                     const form f, __m128i shift, const int h, const int rows)
{
    const bool halves = f.kind == DG_Q_HALVES,
               low = f.per && (f.kind == DG_Q_PLAIN || f.kind == DG_Q_HALVES);
    const __m256 w = _mm256_load_ps(step + h * DG_QCOLS);
    __m256i sum[ROWS];
    sum_fours(sum, l, n, 4 * h, halves ? 4 : 8, f.per, rows);
    for (int r = 0; r < rows; r++) {
        if (low)
            sum[r] = lowered(sum[r], &l[r], h, !halves, shift);
        const __m256 t = _mm256_cvtepi32_ps(sum[r]);
        part[r] = h ? _mm256_fmadd_ps(t, w, part[r]) : _mm256_mul_ps(t, w);
    }
}

/* One block of 32: `rows` rows times eight columns. */
INLINE void add_block(__m256 y[ROWS], const line l[ROWS], const uint8_t *n, const float *step,
                      const form f, __m128i shift, const int rows)
{
    __m256 part[ROWS];
    add_half(part, l, n, step, f, shift, 0, rows);
    if (f.kind == DG_Q_HALVES)
        add_half(part, l, n, step, f, shift, 1, rows);
    for (int r = 0; r < rows; r++)
        y[r] = _mm256_fmadd_ps(part[r], _mm256_set1_ps(l[r].x->step[l[r].which][0]), y[r]);
}

/* ---- super-blocks ----
 *
 * Sums of 16 bits are multiplied by what their group is scaled with when two of them are added. */

INLINE __m256i four_bytes(const int8_t *p)
{
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return _mm256_set1_epi32(bytes);
}

/* sum[r] += a group of `count` fours from the first on. */
INLINE void add_group(__m256i sum[ROWS], const line l[ROWS], const uint8_t *n, __m256i times,
                      const int first, const int count, const int per, const int rows)
{
#pragma GCC unroll 8
    for (int i = 0; i < count; i += per) {
        __m256i twos[ROWS];
#pragma GCC unroll 8
        for (int k = i; k < i + per; k++) {
            const __m256i w = _mm256_load_si256((const __m256i *)(n + (first + k) * 4 * DG_QCOLS));
            for (int r = 0; r < rows; r++) {
                const dg_qsuper *x = (const dg_qsuper *)l[r].x;
                const int four = first + k;
                const __m256i t =
                    _mm256_maddubs_epi16(w, four_bytes(&x->n[four / 2][l[r].which][four % 2 * 4]));
                twos[r] = k == i ? t : _mm256_add_epi16(twos[r], t);
            }
        }
        for (int r = 0; r < rows; r++)
            sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(twos[r], times));
    }
}

/* The sum over groups of their sums of numbers times `less`, of one row. */
INLINE __m256i least_of(const line *l, const uint8_t *less, const bool halves)
{
    const dg_qsuper *x = (const dg_qsuper *)l->x;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i high = _mm256_setzero_si256(), low = high;
    for (int i = 0; i < (halves ? 4 : 2); i++) {
        const __m256i w = _mm256_load_si256((const __m256i *)(less + i * 4 * DG_QCOLS));
        const int at = (halves ? 1 : 0) + i / 2;
        const __m256i h = four_bytes(&x->high[at][l->which][i % 2 * 4]),
                      lo = four_bytes(&x->low[at][l->which][i % 2 * 4]);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_maddubs_epi16(w, h), ones));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_maddubs_epi16(w, lo), ones));
    }
    return _mm256_add_epi32(_mm256_slli_epi32(high, 6), low);
}

/* A super-block: `rows` rows times eight columns from column c on. */
INLINE void add_super(__m256 y[ROWS], const line l[ROWS], const dg_qpanel *p, int c, const form f,
                      const int rows)
{
    const bool halves = group_of(f.kind) == 16;
    const int count = halves ? 4 : 8, per = f.per < count ? f.per : count;
    __m256i sum[ROWS];
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_si256();
    for (int g = 0; g < DG_QSLICE / 4 / count; g++) {
        const __m256i times = _mm256_load_si256((const __m256i *)(p->times + g * DG_QCOLS + c));
        add_group(sum, l, p->n + 4 * c, times, g * count, count, per, rows);
        if (f.kind != DG_Q_SUPER_HALVES)
            continue;
        /* what making the weights unsigned added: `up` times the sum of x, an upper half of 0 */
        const __m256i up = _mm256_set1_epi16((int16_t)p->up),
                      by = _mm256_srli_epi32(_mm256_mullo_epi16(times, up), 16);
        for (int r = 0; r < rows; r++) {
            const __m256i x =
                _mm256_set1_epi32(((const dg_qsuper *)l[r].x)->bias[g / 2][l[r].which][g % 2] / 32);
            sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(x, by));
        }
    }
    const __m256 step = _mm256_load_ps(p->step + c), least = _mm256_load_ps(p->least + c);
    for (int r = 0; r < rows; r++) {
        __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r]), step);
        if (has_least(f.kind))
            t = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(least_of(&l[r], p->less + 4 * c, halves)),
                                 least, t);
        const float *x = ((const dg_qsuper *)l[r].x)->step[l[r].which];
        y[r] = _mm256_fmadd_ps(t, _mm256_set1_ps(x[0]), y[r]);
    }
}

/* `rows` rows times eight columns from column c on; to[r] has room for eight. */
INLINE void multiply_eight(float *const to[ROWS], const line from[ROWS], const dg_qgemm_args *a,
                           int c, const form f, const int rows)
{
    const dg_qpanel *p = a->panel;
    const int per_block = DG_QBLOCK / group_of(f.kind);
    const __m128i shift = _mm_cvtsi32_si128(p->up ? 7 - __builtin_ctz((unsigned)p->up) : 0);
    __m256 y[ROWS];
    line l[ROWS];
    for (int r = 0; r < rows; r++) {
        l[r] = from[r];
        y[r] = a->add ? _mm256_loadu_ps(to[r]) : _mm256_setzero_ps();
    }
    if (dg_qkind_super(f.kind))
        add_super(y, l, p, c, f, rows);
    for (int b = 0; b < a->n_block && !dg_qkind_super(f.kind); b++) {
        const int at = b * per_block * DG_QCOLS + c;
        add_block(y, l, p->n + b * DG_QBLOCK * DG_QCOLS + 4 * c, p->step + at, f, shift, rows);
        take_least(y, l, p->least + at, f, rows);
        for (int r = 0; r < rows; r++)
            l[r].x++;
    }
    for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(to[r], y[r]);
}

/* `rows` rows from row `first` on; a constant at every call. */
INLINE void multiply(const dg_qgemm_args *a, int first, const form f, const int rows)
{
    line l[ROWS];
    for (int r = 0; r < rows; r++) {
        int row = a->first_row + first + r;
        l[r] = (line){a->x + (size_t)(row / 2) * a->ldx, row % 2};
    }
    for (int c = 0; c < a->n_col; c += WIDTH) {
        const size_t n_col = (size_t)dg_min(WIDTH, a->n_col - c);
        float spare[ROWS][WIDTH] = {0}, *row[ROWS], *to[ROWS];
        for (int r = 0; r < rows; r++) {
            row[r] = a->y + (size_t)(first + r) * a->ldy + c;
            to[r] = n_col == WIDTH ? row[r] : spare[r];
            if (n_col < WIDTH && a->add)
                memcpy(spare[r], row[r], n_col * sizeof *row[r]);
        }
        multiply_eight(to, l, a, c, f, rows);
        for (int r = 0; r < rows && n_col < WIDTH; r++)
            memcpy(row[r], spare[r], n_col * sizeof *row[r]);
    }
}

INLINE void multiply_all(const dg_qgemm_args *a, const form f)
{
    int row = 0;
    for (; row + ROWS <= a->n_row; row += ROWS)
        multiply(a, row, f, ROWS);
    for (; row < a->n_row; row++)
        multiply(a, row, f, 1);
}

/* Two products of a number up to `most` and one up to 127: so many such sums fit into 16 bits. */
static int per_of(int most)
{
    return most <= 15 ? 8 : most <= 31 ? 4 : most <= 63 ? 2 : 0;
}

static void gemm(const dg_qgemm_args *a)
{
    const dg_qkind kind = a->panel->kind;
    const int per = per_of(a->panel->most);
    if (kind == DG_Q_PLAIN && per == 0)
        multiply_all(a, (form){DG_Q_PLAIN, 0});
    else if (kind == DG_Q_PLAIN)
        multiply_all(a, (form){DG_Q_PLAIN, 4});
    else if (kind == DG_Q_LEAST && per == 8)
        multiply_all(a, (form){DG_Q_LEAST, 8});
    else if (kind == DG_Q_LEAST)
        multiply_all(a, (form){DG_Q_LEAST, 4});
    else if (kind == DG_Q_HALVES && per == 0)
        multiply_all(a, (form){DG_Q_HALVES, 0});
    else if (kind == DG_Q_HALVES)
        multiply_all(a, (form){DG_Q_HALVES, 4});
    else if (kind == DG_Q_SUPER_LEAST && per == 8)
        multiply_all(a, (form){DG_Q_SUPER_LEAST, 8});
    else if (kind == DG_Q_SUPER_LEAST)
        multiply_all(a, (form){DG_Q_SUPER_LEAST, 4});
    else if (kind == DG_Q_SUPER_HALVES && per == 2)
        multiply_all(a, (form){DG_Q_SUPER_HALVES, 2});
    else if (kind == DG_Q_SUPER_HALVES)
        multiply_all(a, (form){DG_Q_SUPER_HALVES, 4});
    else
        multiply_all(a, (form){DG_Q_SUPER_HALVES_LEAST, 4});
}

const dg_qkernels dg_quantised_avx2 = {
    .quantise = dg_quantise_avx2,
    .quantise_super = dg_quantise_super_avx2,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
