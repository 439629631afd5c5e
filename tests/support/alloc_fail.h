/* Makes a chosen allocation fail, so that a test can walk through every place that runs out of
 * memory:
 *
 *     for (long n = 1;; n++) {
 *         dg_test_fail_alloc_at(n);
 *         dgemma_status st = dg_thing_create(&thing, &err);
 *         if (!dg_test_alloc_done()) {        // the n-th allocation never came: all were walked
 * through ck_assert_int_eq(st, DGEMMA_OK); break;
 *         }
 *         ck_assert_int_eq(st, DGEMMA_E_NOMEM);
 *     }
 *
 * It sees malloc, calloc, realloc and aligned_alloc as called by our own code and by jansson. Check
 * allocates as well: between fail_alloc_at and alloc_done there must be no ck_assert. */
#ifndef DG_TESTS_ALLOC_FAIL_H
#define DG_TESTS_ALLOC_FAIL_H

#include <stdbool.h>

/* The n-th allocation from now on, in whichever thread, gives NULL; the others work. n >= 1. */
void dg_test_fail_alloc_at(long n);

/* Back to normal. True when the chosen allocation was reached. */
bool dg_test_alloc_done(void);

/* How many allocations there have been since dg_test_fail_alloc_at. */
long dg_test_alloc_count(void);

#endif
