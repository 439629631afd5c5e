/* The names of dgemma_kv_type, as options and files give them. */
#ifndef DG_BASE_KV_TYPE_H
#define DG_BASE_KV_TYPE_H

#include <stdbool.h>
#include "dgemma.h"

#define DG_KV_TYPES "bf16, f32, q8_0 or fp8"

/* NULL leaves *type as it is; false for what is none of DG_KV_TYPES. */
bool dg_kv_type_named(dgemma_kv_type *type, const char *name);

#endif
