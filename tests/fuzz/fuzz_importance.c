/* An importance file of arbitrary bytes, in either form: what is accepted has weights that can be
 * used, under names that are found. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "convert/importance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dgemma_error err = {0};
    dg_importance imp;
    if (dg_importance_parse(&imp, data, size, "fuzz", &err)) {
        check(err.status && err.msg[0] && !imp.entry);
        return 0;
    }
    check(imp.n_entry > 0);
    for (size_t i = 0; i < imp.n_entry; i++) {
        const dg_importance_entry *e = &imp.entry[i];
        char name[256];
        check(e->name_len > 0 && e->name_len < sizeof name && e->n > 0 && e->n % e->n_mat == 0);
        memcpy(name, e->name, e->name_len);
        name[e->name_len] = '\0';
        check(strlen(name) < e->name_len || dg_importance_find(&imp, name) == e);
        for (size_t k = 0; k < e->n; k++)
            check(e->weight[k] > 0 && isfinite(e->weight[k]));
    }
    dg_importance_clear(&imp);
    return 0;
}
