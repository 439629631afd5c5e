/* What a constraint says of a text. */
#ifndef DG_TESTS_JUDGE_H
#define DG_TESTS_JUDGE_H

#include "dgemma_tools.h"

/* The test fails when the constraint cannot tell. */
dgemma_verdict dg_test_judge(dgemma_constraint *c, const char *text);

#endif
