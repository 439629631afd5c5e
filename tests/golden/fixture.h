/* A golden fixture: a small checkpoint and a trace of what the reference implementation computed
 * with it. The checkpoint is the folder model/ of the fixture, or the file that trace.json names as
 * "model", a path from where the runner was started, with a hash of each file under "files". */
#ifndef DG_GOLDEN_FIXTURE_H
#define DG_GOLDEN_FIXTURE_H

#include "base/error.h"
#include "engine/loader.h"
#include "format/safetensors.h"
#include "base/file.h"
#include "model/adapters.h"
#include "model/forward.h"
#include "model/vision.h"

typedef struct golden_options {
    const char *device;
    unsigned cpu_flags;
    int n_thread;
    int chunk;      /* tokens encoded per pass; 0: all at once */
    bool as_served; /* as users get it, 16 bits where the backend has them: held to what the fixture
                       says of bfloat16 */
    const char *weights; /* narrower than they are, errors are only said: as a CUDA device makes
                            them, or on the CPU rounded to what they would be; NULL: as they are */
} golden_options;

typedef struct fixture {
    const char *dir;
    char kind[32];
    golden_options opt;

    dg_file_map trace_file;
    dg_safetensors trace;
    dg_loaded loaded;
    dg_config cfg; /* loaded's, as is gen */
    dg_generation_config gen;
    char model_path[256]; /* of trace.json; empty: the fixture's own folder */
    int max_new_tokens;   /* of trace.json */
    dg_backend *be;
    dg_model *model;
    dg_adapter_use adapter; /* of the model, where n_adapter is 1 */
    int n_adapter;
    dg_vision *vision; /* NULL: none */
    dg_kv_cache *kv;
    dg_forward *forward;

    double tol_encoder, tol_logits; /* as_served: of trace.json, 0 where it says nothing */

    /* what was found: the worst error of each sort, and how many things were compared */
    double worst_vision, worst_carried, worst_encoder, worst_logits, worst_entropy;
    int n_compared;
    char note[160];
} fixture;

/* What must hold (docs/testing.md). */
#define TOL_VISION  2e-5
#define TOL_CARRIED 1e-4 /* the encoder behind our own image features; see docs/testing.md */
#define TOL_ENCODER 2e-5
#define TOL_LOGITS  2e-4
#define TOL_ENTROPY 1e-3

dgemma_status fixture_open(fixture *fx, const char *dir, const golden_options *opt,
                           dgemma_error *err);
void fixture_close(fixture *fx);

/* A tensor of the trace; NULL with an error when it is missing or not of this type. */
const dg_tensor *fixture_tensor(fixture *fx, const char *name, dg_dtype type, dgemma_error *err);

/* The ids of an I64 tensor as int32, in memory of the caller's. */
dgemma_status fixture_ids(fixture *fx, const char *name, int32_t **out, int *n, dgemma_error *err);

/* Holds n floats to an F32 tensor of the trace: |got - want| / |want| <= tol, over the whole
 * tensor. */
dgemma_status fixture_compare(fixture *fx, const char *name, const float *got, size_t n, double tol,
                              double *worst, dgemma_error *err);
dgemma_status fixture_compare_to(fixture *fx, const char *what, const float *got, const float *want,
                                 size_t n, double tol, double *worst, dgemma_error *err);

/* Encodes tokens in chunks of opt.chunk, or a little more where an image block would be cut;
 * `encoded` [n, n_embd] may be NULL. Rows with feature[i] >=
 * 0 take that row of `features`. */
typedef struct encode_job {
    dg_kv_seq *seq;
    const int32_t *token;
    int n;
    const dg_span *block; /* [n] image blocks, or NULL */
    const int32_t *feature;
    const float *features;
    float *encoded;
    const char *hidden; /* compare the residual stream with tensors of this prefix, or NULL; whole
                           prompts only */
} encode_job;
dgemma_status fixture_encode(fixture *fx, const encode_job *job, dgemma_error *err);

/* One denoising pass; soft, in the backend's memory, NULL: no self-conditioning. logits [n,
 * n_vocab] softcapped. */
typedef struct denoise_job {
    dg_kv_seq *seq;
    const int32_t *canvas;
    int n;
    const float *soft;
    float *logits;
    const char *hidden;
} denoise_job;
dgemma_status fixture_denoise(fixture *fx, const denoise_job *job, dgemma_error *err);

/* The soft embedding of processed logits, [n, n_embd] in the backend's memory. */
dgemma_status fixture_soften(fixture *fx, float *soft, const float *logits, int n,
                             dgemma_error *err);

/* The picture of a trace's prompt, through our tower. */
typedef struct fixture_picture {
    int n_soft;
    dg_backend *be;   /* the fixture's */
    float *features;  /* [n_soft, n_embd] in its memory */
    int32_t *feature; /* [n_prompt] for encode_job */
    dg_span *block;   /* likewise; NULL when image tokens attend causally */
} fixture_picture;

/* From pixel_values and image_position_ids, whose order is held to ours. */
dgemma_status fixture_picture_read(fixture *fx, fixture_picture *p, const int32_t *prompt,
                                   int n_prompt, dgemma_error *err);
void fixture_picture_clear(fixture_picture *p);

/* A folder of pictures instead of a trace. */
typedef struct golden_images {
    int n_picture;
    double worst_share; /* of bytes that differ, each by one */
} golden_images;
dgemma_status golden_images_run(const char *dir, golden_images *found, dgemma_error *err);

/* From here on the backend's weights are rounded: fp8, int4, Q4_K_M or Q8_0. They are freed behind
 * the backend. */
dgemma_status golden_round_weights(dg_backend *be, const char *form, dgemma_error *err);
void golden_rounded_free(void);

/* The kinds of trace. */
dgemma_status golden_forward(fixture *fx, dgemma_error *err);
dgemma_status golden_generate(fixture *fx, dgemma_error *err);
dgemma_status golden_sampler(fixture *fx, dgemma_error *err);
dgemma_status golden_vision(fixture *fx, dgemma_error *err);

#endif
