#include "engine/pictures.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "engine/block_loop.h"
#include "image/image.h"
#include "image/video.h"

enum { VIDEO_FRAME_BUDGET = 70, MEDIA_MAX_BYTES = 1 << 30, MAX_PICTURES = 512 };

/* ---- reading ---- */

static uint64_t hash_of(const dg_patches *p)
{
    return XXH3_64bits_withSeed(p->resized, dg_patches_bytes(p), (uint64_t)p->cols);
}

bool dg_picture_same(const dg_picture *a, const dg_picture *b)
{
    const dg_patches *p = &a->patches, *q = &b->patches;
    return a->hash == b->hash && p->rows == q->rows && p->cols == q->cols && p->patch == q->patch &&
           memcmp(p->resized, q->resized, dg_patches_bytes(p)) == 0;
}

bool dg_picture_copy(dg_picture *to, const dg_picture *from)
{
    *to = *from;
    to->patches.resized = dg_malloc(dg_patches_bytes(&from->patches));
    if (!to->patches.resized)
        return false;
    memcpy(to->patches.resized, from->patches.resized, dg_patches_bytes(&from->patches));
    return true;
}

/* Sets the bytes aside that the picture will have. */
static dgemma_status take_memory(dg_pictures *out, const dg_image *image, const dg_patch_rule *rule,
                                 dgemma_error *err)
{
    int width, height;
    dgemma_status st =
        dg_image_target_size(image->width, image->height, rule, &width, &height, err);
    if (st)
        return st;
    size_t n = (size_t)width * (size_t)height * 3;
    st = dg_picture_memory_take(out->memory, n, out->n_byte, err);
    out->n_byte += st ? 0 : n;
    return st;
}

static dgemma_status add_picture(dg_pictures *out, const dg_pictures_config *cfg,
                                 const dg_image *image, int budget, dgemma_error *err)
{
    if (out->n == MAX_PICTURES)
        return dg_fail(err, DGEMMA_E_LIMIT, "a request may have %d pictures", MAX_PICTURES);
    if (out->n == out->cap) {
        int cap = dg_max(8, 2 * out->cap);
        dg_picture *list = dg_array_resize(out->list, (size_t)cap, sizeof *list);
        if (!list)
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        out->list = list;
        out->cap = cap;
    }
    dg_picture *p = &out->list[out->n];
    *p = (dg_picture){0};
    const dg_vision_config *v = &cfg->model->vision;
    dg_patch_rule rule = {v->patch, v->pool, budget};
    dgemma_status st = take_memory(out, image, &rule, err);
    if (!st)
        st = dg_image_prepare(&p->patches, image, &rule, err);
    if (st)
        return st;
    p->hash = hash_of(&p->patches);
    out->n_soft += p->patches.n_soft;
    out->n++;
    return DGEMMA_OK;
}

/* The bytes of a medium: given, or read from its file into *file. */
static dgemma_status media_bytes(const dgemma_media *m, dg_buf *file, const void **data,
                                 size_t *size, dgemma_error *err)
{
    *data = m->data;
    *size = m->size;
    if (m->data)
        return DGEMMA_OK;
    dgemma_status st = dg_file_read(file, m->path, err);
    *data = file->data;
    *size = file->len;
    return st;
}

/* ---- tokens ---- */

typedef struct placer {
    dg_pictures *out;
    const dg_pictures_config *cfg;
    dg_tokens tokens; /* the new prompt */
    int32_t *feature; /* [cap] beside it */
    dg_span *block;
    size_t cap;
    int next_feature;
    dgemma_error *err;
} placer;

static dgemma_status push(placer *p, int32_t id, dg_span block, int32_t feature)
{
    size_t at = p->tokens.n;
    if (at == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 256;
        int32_t *features = dg_array_resize(p->feature, cap, sizeof *features);
        if (features)
            p->feature = features;
        dg_span *blocks = dg_array_resize(p->block, cap, sizeof *blocks);
        if (blocks)
            p->block = blocks;
        if (!features || !blocks)
            return dg_fail(p->err, DGEMMA_E_NOMEM, "out of memory");
        p->cap = cap;
    }
    if (!dg_tokens_push(&p->tokens, id))
        return p->tokens.least ? dg_fail_context(p->err, p->tokens.max, p->tokens.least, false)
                               : dg_fail(p->err, DGEMMA_E_NOMEM, "out of memory");
    p->block[at] = block;
    p->feature[at] = feature;
    return DGEMMA_OK;
}

static dgemma_status push_text(placer *p, int32_t id)
{
    int at = (int)p->tokens.n;
    return push(p, id, (dg_span){at, at + 1}, -1);
}

static dgemma_status push_string(placer *p, const char *text)
{
    dg_tokens ids;
    dg_tokens_init(&ids, 64);
    dgemma_status st = dg_tokenizer_encode(p->cfg->tokenizer, text, strlen(text), 0, &ids, p->err);
    for (size_t i = 0; !st && i < ids.n; i++)
        st = push_text(p, ids.ids[i]);
    dg_tokens_clear(&ids);
    return st;
}

/* <|image>, a token for each row of features, <image|>. */
static dgemma_status push_picture(placer *p, int n_soft, int32_t placeholder)
{
    const dg_config *m = p->cfg->model;
    dgemma_status st = push_text(p, m->boi_token);
    dg_span block = {(int)p->tokens.n, (int)p->tokens.n + n_soft};
    p->out->list[p->out->n - 1].token = block.first;
    for (int i = 0; !st && i < n_soft; i++)
        st = push(p, placeholder, block, p->next_feature++);
    return st ? st : push_text(p, m->eoi_token);
}

static dgemma_status place_image(placer *p, const void *data, size_t size, int budget,
                                 int32_t placeholder)
{
    dg_image image = {0};
    dgemma_status st = dg_image_decode(&image, data, size, NULL, p->err);
    if (!st)
        st = add_picture(p->out, p->cfg, &image, budget, p->err);
    dg_image_clear(&image);
    return st ? st : push_picture(p, p->out->list[p->out->n - 1].patches.n_soft, placeholder);
}

/* A video on its way into the prompt: "mm:ss <|image>…<image|>" for each frame, joined by spaces.
 */
typedef struct frames {
    placer *p;
    int n;
    int32_t placeholder;
} frames;

static dgemma_status place_frame(void *arg, const dg_image *image, double seconds,
                                 dgemma_error *err)
{
    frames *f = arg;
    char time[DG_VIDEO_TIME], stamp[DG_VIDEO_TIME + 4];
    snprintf(stamp, sizeof stamp, "%s%s ", f->n++ ? " " : "", dg_video_time(time, seconds));
    dgemma_status st = push_string(f->p, stamp);
    if (!st)
        st = add_picture(f->p->out, f->p->cfg, image, VIDEO_FRAME_BUDGET, err);
    return st ? st
              : push_picture(f->p, f->p->out->list[f->p->out->n - 1].patches.n_soft,
                             f->placeholder);
}

static dgemma_status place_video(placer *p, const void *data, size_t size, int32_t placeholder)
{
    frames f = {.p = p, .placeholder = placeholder};
    if (!p->cfg->tokenizer)
        return dg_fail(p->err, DGEMMA_E_UNSUPPORTED,
                       "a video needs a tokenizer for its times, which the model lacks");
    return dg_video_frames(data, size, DG_VIDEO_FRAMES, NULL, place_frame, &f, p->err);
}

static dgemma_status place_medium(placer *p, const dgemma_media *m, int32_t placeholder)
{
    dg_buf file;
    const void *data;
    size_t size;
    dg_buf_init(&file, MEDIA_MAX_BYTES);
    dgemma_status st = media_bytes(m, &file, &data, &size, p->err);
    bool read = !st; /* what could not be read is named already */
    int budget = m->max_soft_tokens ? m->max_soft_tokens : p->cfg->budget;
    if (read)
        st = m->video ? place_video(p, data, size, placeholder)
                      : place_image(p, data, size, budget, placeholder);
    dg_buf_clear(&file);
    return st && read && m->path ? dg_fail_prefix(p->err, st, m->path) : st;
}

dgemma_status dg_pictures_place(dg_pictures *out, const dg_pictures_config *cfg, dg_tokens *tokens,
                                const dg_media_slot *slot, size_t n_slot, dgemma_error *err)
{
    placer p = {.out = out, .cfg = cfg, .err = err};
    *out = (dg_pictures){.memory = dg_picture_memory_hold(cfg->memory)};
    dg_tokens_init(&p.tokens, tokens->max);
    dgemma_status st = DGEMMA_OK;
    size_t s = 0;
    for (size_t i = 0; !st && i < tokens->n; i++) {
        if (s < n_slot && slot[s].token == i)
            st = place_medium(&p, slot[s++].media, tokens->ids[i]);
        else
            st = push_text(&p, tokens->ids[i]);
    }
    out->block = p.block;
    out->feature = p.feature;
    if (st) {
        dg_tokens_clear(&p.tokens);
        dg_pictures_clear(out);
        return st;
    }
    dg_tokens_clear(tokens);
    *tokens = p.tokens;
    return DGEMMA_OK;
}

void dg_pictures_clear(dg_pictures *p)
{
    for (int i = 0; i < p->n; i++)
        dg_patches_clear(&p->list[i].patches);
    dg_free(p->list);
    dg_free(p->block);
    dg_free(p->feature);
    if (p->memory)
        dg_picture_memory_give(p->memory, p->n_byte);
    dg_picture_memory_release(p->memory);
    *p = (dg_pictures){0};
}
