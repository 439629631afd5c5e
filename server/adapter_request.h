/* Which of the engine's adapters a request asks for: by its `model`, or by its `lora`, in any
 * dialect. */
#ifndef DG_SERVER_ADAPTER_REQUEST_H
#define DG_SERVER_ADAPTER_REQUEST_H

#include <jansson.h>
#include "dgemma.h"
#include "errors.h"

typedef struct dg_adapter_choice {
    dgemma_adapter_use use[DGEMMA_MAX_ADAPTER_USES];
    size_t n;
    const char *model; /* what the answer calls the model; lives as long as the engine and `base` */
} dg_adapter_choice;

/* The adapter that a model's name means, "NAME", or "BASE:NAME", and either with ":latest" behind;
 * -1: the model itself, which goes by any other name; -2: "BASE:" with a name that is no adapter's,
 * where there are some. */
int dg_adapter_named(const dgemma_engine *engine, const char *base, const char *model);

/* The names of all that are loaded, for a message. */
void dg_adapter_names(dg_name_list *to, const dgemma_engine *engine);

/* `lora` is a list of {"id": N} or {"name": TEXT}, each with a "scale", and wins over `model`. One
 * with both is of the adapter that both mean, or an error. */
bool dg_adapters_choose(dg_adapter_choice *out, const json_t *root, const dgemma_engine *engine,
                        const char *base, dg_http_error *e);

/* What /v1/models says of an adapter, and what llama-server says of it. */
json_t *dg_adapter_model(const dgemma_engine *engine, size_t adapter, const char *base,
                         int context_length);
json_t *dg_adapter_object(const dgemma_engine *engine, size_t adapter);

#endif
