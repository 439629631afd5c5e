/* Which models a server has, before any of them is loaded: what `--models` names, a file that
 * describes them or a folder that they lie in. */
#ifndef DG_SERVER_MODEL_SPEC_H
#define DG_SERVER_MODEL_SPEC_H

#include "dgemma.h"

enum {
    DG_MODELS_MAX = 256,       /* in one server */
    DG_MODEL_ALIASES_MAX = 64, /* of one model */
    DG_MODEL_NAME_MAX = 200    /* bytes */
};

typedef struct dg_model_spec {
    const char *name;
    const char **aliases; /* "claude-*" stands for all names that begin like it */
    size_t n_alias;
    dgemma_engine_options options;
    int idle_seconds;       /* it is unloaded when nobody has asked it for so long; 0: never */
    bool preload;           /* before the first request */
    bool pinned;            /* also preloaded, and never unloaded */
    dgemma_model_info info; /* from the headers of its files */
} dg_model_spec;

/* Owns every string in it but those of the base options. */
typedef struct dg_model_specs {
    dg_model_spec *list;
    size_t n;
    size_t first; /* the one that is meant where none is named */
    char *folder; /* that paths begin with */
    void **owned;
    size_t n_owned;
} dg_model_specs;

/* What goes for each model that does not say otherwise. Strings are borrowed as long as the specs
 * live. */
typedef struct dg_model_base {
    dgemma_engine_options options;
    int idle_seconds;
    void (*skipped)(void *user, const char *name, const char *why); /* a file that is no model */
    void *user;
} dg_model_base;

/* Reads a file, or looks into a folder, and at the headers of every model. In a folder, what cannot
 * be read is left out and told to `skipped`; in a file it is an error. */
dgemma_status dg_model_specs_read(dg_model_specs *out, const char *path, const dg_model_base *base,
                                  dgemma_error *err);
void dg_model_specs_clear(dg_model_specs *s);

/* Bytes that the model will take: weights, work, and all keys and values that it may keep. */
size_t dg_model_spec_bytes(const dg_model_spec *m);

/* ---- for the two readers ---- */

/* The text of a models file, for models in `folder`. No model is looked at. */
dgemma_status dg_models_file_parse(dg_model_specs *out, const char *text, size_t len,
                                   const char *path, const dg_model_base *base, dgemma_error *err);
dgemma_status dg_models_folder_scan(dg_model_specs *out, const char *path,
                                    const dg_model_base *base, dgemma_error *err);

/* "pocket.gguf" is "pocket" too, unless something else is that is served. */
dgemma_status dg_models_folder_shorten(dg_model_specs *s, dgemma_error *err);

/* One more, with the base's options; others may move. NULL: out of memory. */
dg_model_spec *dg_model_specs_add(dg_model_specs *s, const dg_model_base *base);

/* Memory that lives as long as the specs; NULL: out of memory. */
void *dg_model_specs_own(dg_model_specs *s, void *memory);
char *dg_model_specs_text(dg_model_specs *s, const char *text);

/* Whether no two names are the same, of models, aliases and adapters. */
dgemma_status dg_model_specs_check_names(const dg_model_specs *s, const char *path,
                                         dgemma_error *err);

#endif
