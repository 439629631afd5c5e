/* A folder of a model whose matrices are kept in parts, as quantised ones are, beside one that has
 * their values in floats: both must have the same logits. */
#ifndef DG_TESTS_PARTED_FOLDER_H
#define DG_TESTS_PARTED_FOLDER_H

#include "base/buf.h"
#include "tensor/tensor.h"

enum { FOLDER_TENSORS = 1024, FOLDER_NAME = 128 };

/* A folder that is being made. */
typedef struct folder {
    dg_tensor tensor[FOLDER_TENSORS];
    char name[FOLDER_TENSORS][FOLDER_NAME];
    bool owned[FOLDER_TENSORS];
    size_t n;
} folder;

/* Adds `t` as name and suffix; with data, which becomes the folder's, or with its own. */
void folder_add(folder *f, const char *name, const char *suffix, dg_tensor t, void *data);

/* Makes the folder, and frees its data. `quantisation` is put first into the configuration: keys
 * with a comma behind them, or "". */
void folder_write(folder *f, const char *dir, const dg_buf *config, const char *quantisation);

/* Both have the same logits in floats, and finite ones in whole numbers, which are others where
 * `rounds`. */
void folder_check_logits(const char *parts, const char *plain, bool rounds);

/* A matrix without data or name. */
static inline dg_tensor shaped(dg_dtype type, int64_t rows, int64_t cols)
{
    return (dg_tensor){.type = type, .n_dim = 2, .shape = {rows, cols}};
}

/* All values of a tensor in pieces, in memory of the caller's. */
float *pieces_values(const dg_tensor *t);

#endif
