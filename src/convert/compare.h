/* How far a model is from the one that it was made from: see dgemma_compare. */
#ifndef DG_CONVERT_COMPARE_H
#define DG_CONVERT_COMPARE_H

#include "dgemma_tools.h"

dgemma_status dg_compare(const dgemma_compare_options *opt, dgemma_compared *total,
                         dgemma_error *err);

#endif
