/* Rows of a file that is being written, from those of its source. */
#include <math.h>
#include <string.h>
#include "convert/quantize_rows.h"
#include "suites.h"
#include "tensor/blocks_narrow.h"
#include "tensor/matrix_pieces.h"

/* Experts that are stored in parts, gate and up apart: rows of both, in their order. */
START_TEST(rows_of_pieces)
{
    enum { ROWS = 3, COLS = 64, EXPERTS = 2 };
    unsigned char values[2][EXPERTS][ROWS * COLS / 2], scale[2][EXPERTS][ROWS * COLS / 32];
    dg_piece piece[2][EXPERTS];
    dg_pieces pieces[2];
    dg_tensor source[2];
    for (int s = 0; s < 2; s++) {
        for (int e = 0; e < EXPERTS; e++) {
            for (int i = 0; i < ROWS * COLS / 2; i++)
                values[s][e][i] = (unsigned char)(37 * i + 11 * s + 5 * e + 1);
            memset(scale[s][e], 120 + 2 * s + e, sizeof scale[s][e]);
            piece[s][e] = (dg_piece){.values = values[s][e],
                                     .scale = scale[s][e],
                                     .scale_type = DG_U8,
                                     .scale_rows = 1,
                                     .scale_cols = 32,
                                     .n_scale_col = COLS / 32};
        }
        pieces[s] = (dg_pieces){DG_FORM_MXFP4, piece[s]};
        source[s] = (dg_tensor){.name = s ? "up" : "gate",
                                .type = DG_MXFP4,
                                .n_dim = 3,
                                .shape = {EXPERTS, ROWS, COLS},
                                .bytes = dg_dtype_bytes(DG_MXFP4, EXPERTS * ROWS * COLS),
                                .pieces = &pieces[s]};
    }
    dg_planned to = {.name = "both",
                     .tensor = {.type = DG_MXFP4, .n_dim = 3, .shape = {EXPERTS, 2 * ROWS, COLS}},
                     .from = {&source[0], &source[1]}};
    const size_t row = dg_dtype_bytes(DG_MXFP4, COLS);
    unsigned char want[2][ROWS * EXPERTS][64], got[EXPERTS * 2 * ROWS * COLS];
    dgemma_error err = {0};
    for (int s = 0; s < 2; s++) {
        unsigned char all[EXPERTS * ROWS * COLS];
        ck_assert_int_eq(dg_pieces_make(all, &source[s], 0, ROWS, &err), DGEMMA_OK);
        for (size_t i = 0; i < ROWS * EXPERTS; i++)
            memcpy(want[s][i], all + i * row, row);
    }
    dg_rows_scratch scratch;
    dg_rows_error error = {0};
    ck_assert(dg_rows_scratch_init(&scratch, EXPERTS * 2 * ROWS * COLS));
    for (int64_t first = 0; first < EXPERTS * 2 * ROWS; first++)
        for (int64_t n = 1; first + n <= EXPERTS * 2 * ROWS; n++) {
            ck_assert_int_eq(dg_rows_make(got, &to, first, n, &scratch, &error, &err), DGEMMA_OK);
            for (int64_t i = 0; i < n; i++) {
                int64_t at = first + i, e = at / (2 * ROWS), r = at % (2 * ROWS);
                ck_assert_mem_eq(got + (size_t)i * row, want[r / ROWS][e * ROWS + r % ROWS], row);
            }
        }
    ck_assert(error.off == 0 && error.size > 0);

    to.tensor.type = DG_F32;
    source[1].scale = (const float[]){2, 4};
    float wide[COLS], plain[COLS];
    ck_assert_int_eq(dg_rows_make((void *)wide, &to, 2 * ROWS + ROWS, 1, &scratch, &error, &err),
                     0);
    dg_widen(plain, want[1][ROWS], DG_MXFP4, COLS);
    for (int i = 0; i < COLS; i++)
        ck_assert(wide[i] == 4 * plain[i]);
    dg_rows_scratch_clear(&scratch);
}
END_TEST

/* What is not finite is not written, and what a type cannot hold is not either. */
START_TEST(values_are_checked)
{
    float x[32] = {1, 2, 3};
    dg_tensor source = {
        .name = "x", .type = DG_F32, .n_dim = 2, .shape = {1, 32}, .data = x, .bytes = sizeof x};
    dg_planned to = {.name = "x", .tensor = source, .from = {&source}};
    unsigned char out[128];
    dg_rows_scratch scratch;
    dg_rows_error error = {0};
    dgemma_error err = {0};
    ck_assert(dg_rows_scratch_init(&scratch, 32));
    for (int type = DG_F16; type < DG_DTYPE_GGUF; type++) {
        if (type >= DG_DTYPE_FLOAT && !dg_blocks_can_narrow((dg_dtype)type))
            continue;
        if (dg_dtype_block((dg_dtype)type) > 32)
            continue;
        to.tensor.type = (dg_dtype)type;
        x[5] = 4;
        ck_assert_int_eq(dg_rows_make(out, &to, 0, 1, &scratch, &error, &err), DGEMMA_OK);
        x[5] = NAN;
        ck_assert_int_eq(dg_rows_make(out, &to, 0, 1, &scratch, &error, &err), DGEMMA_E_FORMAT);
        ck_assert_ptr_nonnull(strstr(err.msg, "not finite"));
        x[5] = -INFINITY;
        ck_assert_int_eq(dg_rows_make(out, &to, 0, 1, &scratch, &error, &err), DGEMMA_E_FORMAT);
        x[5] = 1e30f;
        dgemma_status st = dg_rows_make(out, &to, 0, 1, &scratch, &error, &err);
        bool wide = type == DG_BF16 || type == DG_MXFP4; /* their exponents reach that far */
        ck_assert_msg(st == (wide ? DGEMMA_OK : DGEMMA_E_FORMAT), "%s: %s",
                      dg_dtype_name((dg_dtype)type), err.msg);
    }
    dg_rows_scratch_clear(&scratch);
}
END_TEST

Suite *quantize_rows_suite(void)
{
    Suite *s = suite_create("quantize_rows");
    TCase *c = tcase_create("rows");
    tcase_add_test(c, rows_of_pieces);
    tcase_add_test(c, values_are_checked);
    suite_add_tcase(s, c);
    return s;
}
