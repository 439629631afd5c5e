/* Engines of unit tests compute on the processor, also where there is a GPU: what they compare is
 * known for it, and a driver's allocations are none of ours to fail.
 *
 * One thread computes, unless a test says how many: several spin while they wait for each other,
 * and the tests run beside others that want the processor. Where races are looked for there are
 * two. */
#ifndef DG_TESTS_CPU_ENGINE_H
#define DG_TESTS_CPU_ENGINE_H

#include "dgemma.h"
#include "support/sanitized.h"

static inline dgemma_engine_options dg_test_engine_defaults(void)
{
    dgemma_engine_options opt = dgemma_engine_defaults();
    opt.device = "cpu";
    opt.n_threads = DG_TEST_THREAD_SANITIZER ? 2 : 1;
    return opt;
}

#endif
