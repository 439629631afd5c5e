/* What was published of the released checkpoint (google/diffusiongemma-26B-A4B-it): logits of one
 * denoising step, from the transformers test-suite on a GPU in bfloat16. */
#ifndef DG_ENGINE_PUBLISHED_H
#define DG_ENGINE_PUBLISHED_H

#include <stdint.h>

/* Logits of canvas rows 0 … n_row - 1, words 0 … n_word - 1, after the softcap, with the model cut
 * after n_layer layers (0: none is left out). */
typedef struct dg_published {
    int n_layer, n_row, n_word;
    const double *logits;
    double allowed; /* mean distance before the softcap; see published.c */
} dg_published;

enum { DG_PUBLISHED_PROMPT = 20, DG_PUBLISHED_CANVAS = 256, DG_PUBLISHED_SETS = 2 };

/* "Write a long essay about Portugal." as a chat, thinking off. The canvas is the ids 0, 1, …, 255.
 */
extern const int32_t dg_published_prompt[DG_PUBLISHED_PROMPT];
extern const dg_published dg_published_sets[DG_PUBLISHED_SETS];

#endif
