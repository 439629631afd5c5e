#include "base/kv_type.h"
#include <string.h>
#include "base/common.h"

bool dg_kv_type_named(dgemma_kv_type *type, const char *name)
{
    static const char *const names[] = {[DGEMMA_KV_BF16] = "bf16",
                                        [DGEMMA_KV_F32] = "f32",
                                        [DGEMMA_KV_Q8_0] = "q8_0",
                                        [DGEMMA_KV_FP8] = "fp8"};
    for (size_t i = 0; name && i < DG_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *type = (dgemma_kv_type)i;
            return true;
        }
    return !name;
}
