/* Pictures of a prompt, on the caller's thread: read and scaled, and the prompt's placeholders
 * become as many tokens as each needs. What the tower makes of them is picture_features.h's. */
#ifndef DG_ENGINE_PICTURES_H
#define DG_ENGINE_PICTURES_H

#include "backend/backend.h"
#include "dgemma.h"
#include "engine/picture_memory.h"
#include "image/preprocess.h"
#include "model/config.h"
#include "text/chat_template.h"

typedef struct dg_picture {
    dg_patches patches;
    uint64_t hash; /* of what the tower will see: dg_picture_same */
    int token;     /* where its first row stands in the prompt */
} dg_picture;

/* Whether two are the same to the tower, wherever they stand: a hash finds candidates, pixels are
 * compared. */
bool dg_picture_same(const dg_picture *a, const dg_picture *b);

/* A copy for somebody who keeps it; false: no memory. */
bool dg_picture_copy(dg_picture *to, const dg_picture *from);

/* A prompt with its pictures. */
typedef struct dg_pictures {
    dg_picture *list;
    int n, cap;
    dg_picture_memory *memory; /* held; NULL: none was taken */
    size_t n_byte;             /* taken from it */
    const char *salt; /* borrowed: the caches keep pictures of different salts apart; NULL: "" */
    int n_soft;       /* of all of them: rows of features */
    dg_span *block;   /* [n_token] the picture a token belongs to; {p, p + 1} for text */
    int32_t *feature; /* [n_token] row of the features, -1 for text */
} dg_pictures;

/* Where a placeholder stands among the tokens, and what goes there. */
typedef struct dg_media_slot {
    size_t token;
    const dgemma_media *media;
} dg_media_slot;

typedef struct dg_pictures_config {
    const dg_config *model;
    const dg_tokenizer *tokenizer;
    int budget; /* soft tokens of a picture */
    dg_picture_memory *memory;
} dg_pictures_config;

/* Reads the media of all slots and puts their tokens in place of the placeholders. tokens->max
 * bounds the prompt. */
dgemma_status dg_pictures_place(dg_pictures *out, const dg_pictures_config *cfg, dg_tokens *tokens,
                                const dg_media_slot *slot, size_t n_slot, dgemma_error *err);
void dg_pictures_clear(dg_pictures *p);

#endif
