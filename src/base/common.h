/* The few macros that a function cannot replace. */
#ifndef DG_BASE_COMMON_H
#define DG_BASE_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DG_COUNT(a) (sizeof(a) / sizeof((a)[0]))

static inline int dg_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int dg_max(int a, int b)
{
    return a > b ? a : b;
}

static inline int dg_ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

#endif
