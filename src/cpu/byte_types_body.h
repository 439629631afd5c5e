/* The product of each block type, for whoever has a multiply() that is one for all of them:
 * included behind it and behind row_##name (cpu/numbers_body.h). Each type has a copy of the loops,
 * with its constants in them. */
#ifndef DG_CPU_BYTE_TYPES_BODY_H
#define DG_CPU_BYTE_TYPES_BODY_H

#include "cpu/bytes.h"

#define MULTIPLY(type_, name, values, bytes, kind, low, most)                                      \
    static void multiply_##name(const dg_byte_args *a)                                             \
    {                                                                                              \
        multiply(a, DG_Q_##kind, low, most, row_##name);                                           \
    }
DG_NUMBER_TYPES(MULTIPLY)

static void product(const dg_byte_args *a)
{
#define MULTIPLY_ENTRY(type, name, values, bytes, kind, low, most) [DG_##type] = multiply_##name,
    static dg_byte_product_fn *const of_type[DG_QTYPES] = {DG_NUMBER_TYPES(MULTIPLY_ENTRY)};
    of_type[a->type](a);
}

#endif
