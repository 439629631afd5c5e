/* Numbers of JSON within bounds, digit by digit: up to 15 digits in front of the point and 15
 * behind it, no leading zeros, no -0. */
#ifndef DG_CONSTRAINT_NUMBERS_H
#define DG_CONSTRAINT_NUMBERS_H

#include "constraint/syntax.h"

enum { DG_NUMBER_DIGITS = 15, DG_NUMBER_MAX_MULTIPLE = 1000 };

/* A decimal number. Beyond 15 digits in front of the point it is `beyond`; digits after the 15th
 * behind the point are left out (`more`). */
typedef struct dg_decimal {
    bool negative, beyond, more;
    char whole[DG_NUMBER_DIGITS + 1];    /* without leading zeros; "0" */
    char fraction[DG_NUMBER_DIGITS + 1]; /* without trailing zeros */
} dg_decimal;

/* From a number as JSON writes it. */
void dg_decimal_parse(dg_decimal *d, const char *text, size_t len);
int dg_decimal_compare(const dg_decimal *a, const dg_decimal *b);

typedef struct dg_bound {
    bool there, exclusive;
    dg_decimal at;
} dg_bound;

/* The stricter of what stands there and what is given. */
void dg_bound_raise(dg_bound *lower, const dg_decimal *at, bool exclusive);
void dg_bound_lower(dg_bound *upper, const dg_decimal *at, bool exclusive);

typedef struct dg_number_rule {
    bool integer;
    dg_bound lower, upper;
    uint32_t multiple; /* 0: of anything; then 1 … DG_NUMBER_MAX_MULTIPLE, and integers only */
} dg_number_rule;

dg_node dg_number_node(dg_syntax *s, const dg_number_rule *rule);

#endif
