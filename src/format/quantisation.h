/* What a folder says about its quantised weights: "quantization_config" of config.json, or
 * hf_quant_config.json. Names and shapes of the tensors say what each matrix is; this says which of
 * the known ways they follow, and what cannot be seen from shapes. What is not known is refused by
 * its key. */
#ifndef DG_FORMAT_QUANTISATION_H
#define DG_FORMAT_QUANTISATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

typedef enum dg_quant_method {
    DG_QUANT_NONE,
    DG_QUANT_COMPRESSED_TENSORS,
    DG_QUANT_MODELOPT,
    DG_QUANT_FP8,
    DG_QUANT_GPTQ,
    DG_QUANT_AWQ,
    DG_QUANT_AUTO_ROUND,
    DG_QUANT_MLX
} dg_quant_method;

enum { DG_QUANT_BLOCKS = 16 };

typedef struct dg_quantisation {
    dg_quant_method method;
    int n_block; /* sizes of the blocks of a matrix that share a scale, where there are some */
    struct {
        int rows, cols;
    } block[DG_QUANT_BLOCKS];

    /* of MLX: the widths that numbers have, each with a size of groups */
    int n_width;
    struct {
        int bits, group;
    } width[DG_QUANT_BLOCKS];

    /* of all others: how many values of a row share a scale, where the config says so */
    int n_group;
    int group[DG_QUANT_BLOCKS]; /* -1: all of a row */
    bool any_group;             /* some matrices of four bits have a size that it does not say */

    /* of compressed-tensors, where all groups say so */
    bool asymmetric; /* there are zeros */
    bool wide;       /* numbers have more bits than four */

    /* of GPTQ, AWQ and AutoRound */
    bool symmetric; /* zeros are 8 */
    int zero_less;  /* zeros are stored less by one */
    bool ordered;   /* columns have groups of their own: "desc_act" */
} dg_quantisation;

/* Reads the object "quantization_config". `where` and `path` ("quantization_config.") begin errors:
 * DGEMMA_E_UNSUPPORTED for what is not known. */
dgemma_status dg_quantisation_read(dg_quantisation *out, const json_t *config, const char *where,
                                   const char *path, dgemma_error *err);

/* Whether the config allows groups of `size` values in rows of `row`. */
bool dg_quantisation_has_group(const dg_quantisation *q, int64_t size, int64_t row);

/* Whether it is MLX's: there is no method in it, but bits and a size of groups. */
bool dg_quantisation_is_mlx(const json_t *config);

/* The same of "quantization" in hf_quant_config.json. */
dgemma_status dg_quantisation_read_modelopt(dg_quantisation *out, const json_t *config,
                                            const char *where, const char *path, dgemma_error *err);

#endif
