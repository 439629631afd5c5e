/* A unit test that cannot run here says so; a skip is printed and counted, never silent. */
#ifndef DG_TESTS_SKIP_H
#define DG_TESTS_SKIP_H

void dg_test_skip_init(void); /* before the first test */
int dg_test_skip_count(void); /* over all processes */

/* Prints why; the test then returns. Call it at most once in a test. */
void dg_test_skip(const char *why);

#endif
