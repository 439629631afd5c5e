/* Engines of unit tests compute on the processor, also where there is a GPU: what they compare is
 * known for it, and a driver's allocations are none of ours to fail. */
#ifndef DG_TESTS_CPU_ENGINE_H
#define DG_TESTS_CPU_ENGINE_H

#include "dgemma.h"

static inline dgemma_engine_options dg_test_engine_defaults(void)
{
    dgemma_engine_options opt = dgemma_engine_defaults();
    opt.device = "cpu";
    return opt;
}

#endif
