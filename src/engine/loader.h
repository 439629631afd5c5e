/* From a path to everything a checkpoint says, in either format: weights by name, configuration,
 * tokenizer, chat template. */
#ifndef DG_ENGINE_LOADER_H
#define DG_ENGINE_LOADER_H

#include "format/checkpoint.h"
#include "model/config.h"
#include "text/tokenizer.h"

typedef struct dg_loaded {
    dg_checkpoint *checkpoint;
    dg_checkpoint *mmproj; /* the file of a GGUF model's vision tower, whose config is in
                              cfg.vision; or NULL */
    char *tower_ignored;   /* what is wrong with the file beside the model, which is therefore not
                              mmproj; NULL: nothing */
    dg_config cfg;         /* its vision is present only where there are weights too */
    dg_generation_config generation;
    dg_tokenizer *tokenizer; /* NULL: the checkpoint has none */
    char *chat_template;     /* as it stands there; NULL: none */
} dg_loaded;

/* On failure *out is empty. */
dgemma_status dg_load(dg_loaded *out, const char *path, dgemma_error *err);

/* The file of a GGUF model's tower: `path`, or, when that is NULL, the one beside the model, if
 * there is one that is a tower for this model. DGEMMA_E_ARG: `path` is not a GGUF file. */
dgemma_status dg_load_tower(dg_loaded *l, const char *path, dgemma_error *err);
void dg_loaded_clear(dg_loaded *l);

/* As dg_checkpoint_patch and dg_checkpoint_check, of all files. */
bool dg_loaded_patch(dg_loaded *l, const void *address);
dgemma_status dg_loaded_intact(const dg_loaded *l, dgemma_error *err);

/* Whether the tensors, the tower's too, are those that the config asks for. */
dgemma_status dg_loaded_check(const dg_loaded *l, dgemma_error *err);

#endif
