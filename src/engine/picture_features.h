/* What the vision tower makes of pictures, on the engine's thread. Features are kept by content: a
 * picture that a conversation already holds is not encoded again. */
#ifndef DG_ENGINE_PICTURE_FEATURES_H
#define DG_ENGINE_PICTURE_FEATURES_H

#include "engine/pictures.h"
#include "model/vision.h"

typedef struct dg_picture_cache dg_picture_cache;

/* max_bytes of features and pixels; the least recently used go first. */
dgemma_status dg_picture_cache_create(dg_picture_cache **out, dg_vision *tower, dg_backend *be,
                                      int n_embd, size_t max_bytes, dgemma_error *err);
void dg_picture_cache_free(dg_picture_cache *c);

/* A request's pictures on their way through the tower. That takes long, so it is done a few of them
 * at a time, and somebody else can have the thread in between. Zero: no pictures. */
typedef struct dg_picture_encoding {
    dg_picture_cache *cache;
    const dg_pictures *pictures;
    float *features; /* [pictures->n_soft, n_embd] backend memory */
    bool *missing;   /* [pictures->n] its features are still to be made */
    int n_missing;
    int n_encoded; /* pictures that went through the tower */
} dg_picture_encoding;

/* Takes the features of the pictures that the cache knows. Those in front of token n_encoded of the
 * prompt are not wanted: their keys and values are there. Cache and pictures are borrowed. */
dgemma_status dg_picture_encoding_begin(dg_picture_encoding *l, dg_picture_cache *c,
                                        const dg_pictures *p, int n_encoded, dgemma_error *err);
void dg_picture_encoding_clear(dg_picture_encoding *l);

/* One pass of the tower over the first pictures that are missing; none where the cache has come to
 * know them all. */
dgemma_status dg_picture_encoding_run(dg_picture_encoding *l, dgemma_error *err);

#endif
