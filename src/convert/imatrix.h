/* An importance file, made by letting a model read and denoise a text: see dgemma_imatrix. */
#ifndef DG_CONVERT_IMATRIX_H
#define DG_CONVERT_IMATRIX_H

#include "dgemma_tools.h"

dgemma_status dg_imatrix(const dgemma_imatrix_options *opt, dgemma_imatrix_result *result,
                         dgemma_error *err);

#endif
