/* The adapters that an engine has loaded, by name, and what requests choose of them. */
#ifndef DG_ENGINE_ADAPTER_SET_H
#define DG_ENGINE_ADAPTER_SET_H

#include "dgemma.h"
#include "model/model.h"

typedef struct dg_adapter_entry {
    char *name, *path;
    float scale;
} dg_adapter_entry;

typedef struct dg_adapter_set {
    dg_adapter_entry *list;
    int n;
} dg_adapter_set;

/* DGEMMA_E_ARG names what makes no sense: two of one name, a factor that is not a number. */
dgemma_status dg_adapter_set_check(const dgemma_engine_options *opt, dgemma_error *err);

/* Reads the files of options that were checked and gives their changes to the model. *s is to be
 * cleared in any case. */
dgemma_status dg_adapter_set_open(dg_adapter_set *s, dg_model *m, const dgemma_engine_options *opt,
                                  dgemma_error *err);
void dg_adapter_set_clear(dg_adapter_set *s);

int dg_adapter_set_find(const dg_adapter_set *s, const char *name); /* -1: none */

void dg_adapter_set_describe(const dg_adapter_set *s, const dg_model *m, int adapter,
                             dgemma_adapter_info *info);

/* DGEMMA_E_ARG: a request chooses an adapter that is not there, or one twice. */
dgemma_status dg_adapter_uses_check(const dg_adapter_set *s, const dgemma_request_options *o,
                                    dgemma_error *err);

/* What of it changes anything, in passes' own terms; returns how many. */
int dg_adapter_uses(dg_adapter_use *out, const dg_adapter_set *s, const dgemma_request_options *o);

/* Who may share keys and values: those with this text, which says which adapters read the prompt,
 * and which salt it has. In memory of the caller's (dg_free); NULL: there is none. */
char *dg_adapter_salt(const dg_model *m, const dg_adapter_use *use, int n, const char *salt);

#endif
