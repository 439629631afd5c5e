#include "format/expert_name.h"
#include <stdlib.h>
#include <string.h>
#include "base/common.h"

bool dg_expert_name(const char *stem, size_t n, size_t *before, int *expert, const char **proj)
{
    static const char *const known[] = {".gate_proj", ".up_proj", ".down_proj"};
    for (size_t i = 0; i < DG_COUNT(known); i++) {
        size_t k = strlen(known[i]), at = n - k;
        if (n <= k || strncmp(stem + at, known[i], k) != 0)
            continue;
        size_t digits = 0;
        while (digits < at && stem[at - digits - 1] >= '0' && stem[at - digits - 1] <= '9')
            digits++;
        size_t end = at - digits;
        if (digits < 1 || digits > 5 || (digits > 1 && stem[end] == '0') || end < 9 ||
            strncmp(stem + end - 9, ".experts.", 9) != 0)
            return false;
        *expert = atoi(stem + end);
        *before = end;
        *proj = known[i] + 1;
        return *expert < DG_EXPERT_MAX;
    }
    return false;
}
