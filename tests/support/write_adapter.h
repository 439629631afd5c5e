/* Adapters for tests: random ones for all matrices of a model, the same in the other format, and
 * the model that they are merged into, by the formulas of the formats' own documents. */
#ifndef DG_TESTS_WRITE_ADAPTER_H
#define DG_TESTS_WRITE_ADAPTER_H

#include <stdbool.h>

typedef struct dg_test_adapter {
    const char *tree; /* "model.decoder.", "model.encoder.language_model."; NULL: "model.", both */
    int rank;         /* 0: 3 */
    double alpha;     /* 0: 6 */
    bool rslora;
    unsigned seed;
} dg_test_adapter;

/* Into the folder `dir`, for every matrix of the model in this GGUF file but the embedding. */
void dg_test_write_peft(const char *dir, const char *model, const dg_test_adapter *how);

/* The adapter of a PEFT folder for both trees as a GGUF file. */
void dg_test_write_gguf_adapter(const char *path, const char *peft);

/* A model in F32, with scale times the adapter of a PEFT folder for both trees added to it; NULL:
 * with nothing. */
void dg_test_write_merged(const char *path, const char *model, const char *peft, double scale);

#endif
