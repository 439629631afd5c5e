#include "support/judge.h"
#include <check.h>
#include <string.h>

dgemma_verdict dg_test_judge(dgemma_constraint *c, const char *text)
{
    dgemma_match m;
    dgemma_error err = {0};
    ck_assert_msg(!dgemma_constraint_check(c, text, strlen(text), &m, &err), "%s: %s", text,
                  err.msg);
    return m.verdict;
}
