/* Pictures of a request. On the caller's thread they are read, scaled and cut into patches, and the
 * prompt's placeholders become as many tokens as each needs. On the engine's thread the tower turns
 * patches into features, which are kept by content: a picture that a conversation already holds is
 * not encoded again. */
#ifndef DG_ENGINE_PICTURES_H
#define DG_ENGINE_PICTURES_H

#include "dgemma.h"
#include "image/preprocess.h"
#include "model/vision.h"
#include "text/chat_template.h"

typedef struct dg_picture {
    dg_patches patches;
    uint64_t hash; /* of what the tower will see */
    int token;     /* where its first row stands in the prompt */
} dg_picture;

/* A prompt with its pictures. */
typedef struct dg_pictures {
    dg_picture *list;
    int n, cap;
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
} dg_pictures_config;

/* Reads the media of all slots and puts their tokens in place of the placeholders. tokens->max
 * bounds the prompt. */
dgemma_status dg_pictures_place(dg_pictures *out, const dg_pictures_config *cfg, dg_tokens *tokens,
                                const dg_media_slot *slot, size_t n_slot, dgemma_error *err);
void dg_pictures_clear(dg_pictures *p);

/* ---- features, by content; the engine's thread ---- */

typedef struct dg_picture_cache dg_picture_cache;

/* max_bytes of features and pixels; the least recently used go first. */
dgemma_status dg_picture_cache_create(dg_picture_cache **out, dg_vision *tower, dg_backend *be,
                                      int n_embd, size_t max_bytes, dgemma_error *err);
void dg_picture_cache_free(dg_picture_cache *c);

/* A request's pictures on their way through the tower. That takes long, so it is done a few of them
 * at a time, and somebody else can have the thread in between. Zero: no pictures. */
typedef struct dg_look {
    dg_picture_cache *cache;
    const dg_pictures *pictures;
    float *features; /* [pictures->n_soft, n_embd] backend memory */
    bool *missing;   /* [pictures->n] its features are still to be made */
    int n_missing;
    int n_encoded; /* pictures that went through the tower */
} dg_look;

/* Takes the features of the pictures that the cache knows. Those in front of token n_encoded of the
 * prompt are not wanted: their keys and values are there. Cache and pictures are borrowed. */
dgemma_status dg_look_begin(dg_look *l, dg_picture_cache *c, const dg_pictures *p, int n_encoded,
                            dgemma_error *err);
void dg_look_clear(dg_look *l);

/* One pass of the tower over the first pictures that are missing; none where the cache has come to
 * know them all. */
dgemma_status dg_look_on(dg_look *l, dgemma_error *err);

#endif
