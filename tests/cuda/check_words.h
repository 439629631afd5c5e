/* Tables of words for checks: check_cuda_words.c makes them. */
#ifndef DG_TESTS_CUDA_CHECK_WORDS_H
#define DG_TESTS_CUDA_CHECK_WORDS_H

#include "cuda/cuda_check.h"
#include "cuda/cuda_words.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct table {
    dg_cuda_matrix matrix, head, soft; /* as the head and the soft embedding multiply it */
    float *value, *head_value;         /* [n_vocab, n_embd] */
} table;

table make_table_of(dg_dtype type, int n_vocab, int n_embd);
table with_bytes(table t); /* the same with a head and a soft embedding of E4M3 */

/* What the emulated device is, 80 or 90; a real one stays what it is. */
void use_capability(int capability);

#ifdef __cplusplus
}
#endif

#endif
