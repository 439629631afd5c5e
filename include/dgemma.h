/* dgemma: runs DiffusionGemma, a block-diffusion language model.
 *
 * Two handles carry everything: an engine is a loaded model, a request is one piece of work on it.
 * Functions that can fail return a dgemma_status and, when the caller passes a dgemma_error, say in
 * it what was wrong. The library never prints, never exits and reads no environment variable. */
#ifndef DGEMMA_H
#define DGEMMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DGEMMA_VERSION "0.1.0"

#if defined(DGEMMA_BUILD) && defined(__GNUC__)
#define DGEMMA_API __attribute__((visibility("default")))
#else
#define DGEMMA_API
#endif

/* ---- errors ---- */

typedef enum dgemma_status {
    DGEMMA_OK = 0,
    DGEMMA_E_ARG = -1,         /* the caller asked for something that makes no sense */
    DGEMMA_E_NOMEM = -2,       /* memory is out */
    DGEMMA_E_IO = -3,          /* a file is missing or cannot be read */
    DGEMMA_E_FORMAT = -4,      /* a file's content is broken or contradicts itself */
    DGEMMA_E_UNSUPPORTED = -5, /* well-formed, but not something this build can do */
    DGEMMA_E_LIMIT = -6,       /* a stated limit was exceeded */
    DGEMMA_E_CANCELLED = -7,   /* a callback asked to stop */
    DGEMMA_E_INTERNAL = -8     /* a bug or a broken device */
} dgemma_status;

typedef struct dgemma_error {
    dgemma_status status;
    char msg[512]; /* one line, UTF-8, no newline at its end */
} dgemma_error;

/* "0.1.0"; static. */
DGEMMA_API const char *dgemma_version(void);

/* ---- the engine ----
 *
 * A loaded model and the memory to run it. One thread at a time may work with an engine; several
 * engines in one process do not know of each other. */

typedef struct dgemma_engine dgemma_engine;

typedef enum dgemma_kv_type { DGEMMA_KV_BF16, DGEMMA_KV_F32 } dgemma_kv_type;

typedef struct dgemma_engine_options {
    const char *model_path; /* a Hugging Face checkpoint folder, or a hub cache folder */
    int n_threads;          /* 0: one for each processor this process may use */
    int context_length; /* tokens a request may have, prompt and answer; 0: what the model allows */
    dgemma_kv_type kv_type; /* how keys and values are kept */
    const char *cpu; /* instruction sets to use, "neon", "avx2" or "ref"; NULL: the best there is */
} dgemma_engine_options;

DGEMMA_API dgemma_engine_options dgemma_engine_defaults(void);

/* Loads the model; *out belongs to the caller (dgemma_engine_close). The strings in *opt are
 * copied. */
DGEMMA_API dgemma_status dgemma_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                                            dgemma_error *err);
DGEMMA_API void dgemma_engine_close(dgemma_engine *engine); /* NULL is fine */

typedef struct dgemma_model_info {
    int n_vocab, n_layer, n_embd, n_expert, n_expert_used;
    int context_length, canvas_length;
    bool has_tokenizer;
    bool has_chat_template; /* the tokenizer knows the turn markers */
    const char *backend;    /* "neon", "avx2", "ref" */
    int n_threads;
    size_t weight_bytes;  /* mapped from the file, shared with other processes */
    size_t work_bytes;    /* allocated for passes, whatever the requests */
    size_t request_bytes; /* for a request, beside its keys and values */
    size_t kv_bytes_full; /* keys and values of a request that fills the context */
} dgemma_model_info;

DGEMMA_API void dgemma_engine_info(const dgemma_engine *engine, dgemma_model_info *info);

/* ---- tokens ---- */

/* Token ids of a text into ids[0 … cap); *n is how many there are, and DGEMMA_E_LIMIT says that
 * they did not all fit. With `markers`, special tokens written in the text ("<|turn>") count as
 * such: not for text of unknown origin. */
DGEMMA_API dgemma_status dgemma_tokenize(const dgemma_engine *engine, const char *text, size_t len,
                                         bool markers, int32_t *ids, size_t cap, size_t *n,
                                         dgemma_error *err);

/* Text of token ids, NUL-terminated, in memory that dgemma_free gives back. Special tokens are
 * printed. */
DGEMMA_API dgemma_status dgemma_detokenize(const dgemma_engine *engine, const int32_t *ids,
                                           size_t n, char **text, size_t *len, dgemma_error *err);
DGEMMA_API void dgemma_free(void *p);

/* ---- generation ---- */

typedef struct dgemma_request_options {
    /* One of these. A chat prompt is one message of a user, put between the turn markers; a raw
     * prompt is taken as it stands, markers in it and all. */
    const char *chat_prompt;
    const char *raw_prompt;
    const int32_t *tokens;
    size_t n_tokens;

    uint64_t seed;
    int max_tokens; /* of the answer */

    /* diffusion; the defaults are the model's own */
    int max_denoise_steps;
    float t_min, t_max;
    float entropy_bound;
    int stability_threshold;
    float confidence_threshold;
    int canvas_length;
} dgemma_request_options;

/* What the model asks for, seed 0, and answers of up to 4,096 tokens. */
DGEMMA_API dgemma_request_options dgemma_request_defaults(const dgemma_engine *engine);

typedef enum dgemma_event_kind {
    DGEMMA_EVENT_PROMPT, /* some of the prompt is encoded: n_done of n_total tokens */
    DGEMMA_EVENT_DRAFT,  /* a denoising step was made: tokens, entropy, accepted */
    DGEMMA_EVENT_BLOCK   /* a block is finished: its tokens and text are final */
} dgemma_event_kind;

/* Pointers in an event are valid during the call. */
typedef struct dgemma_event {
    dgemma_event_kind kind;
    int n_done, n_total;   /* PROMPT */
    int block, step;       /* from 0 */
    const int32_t *tokens; /* DRAFT: the most likely token at each position; BLOCK: the block's
                              tokens, without what follows the end of turn */
    size_t n_tokens;
    const float *entropy;    /* DRAFT: uncertainty at each position, in nats */
    const uint8_t *accepted; /* DRAFT: 1 where this step's draw stays on the canvas, 0 where it
                                becomes noise again */
    float mean_entropy;      /* DRAFT */
    const char *text; /* BLOCK: UTF-8, NUL-terminated; NULL when the model has no tokenizer. A
                         character that a block's end cuts comes with the next block */
    size_t text_len;
} dgemma_event;

/* Return false to stop: the request ends as DGEMMA_END_CANCELLED. */
typedef bool dgemma_event_fn(void *user, const dgemma_event *event);

typedef enum dgemma_end {
    DGEMMA_END_STOP,     /* the model ended its turn */
    DGEMMA_END_LENGTH,   /* max_tokens are there */
    DGEMMA_END_CONTEXT,  /* the context is full */
    DGEMMA_END_CANCELLED /* a callback said so */
} dgemma_end;

typedef struct dgemma_stats {
    dgemma_end end;
    int n_prompt, n_output;             /* tokens */
    int n_blocks, n_converged, n_steps; /* converged: blocks that settled before their last step */
    double prompt_seconds;              /* passes that encoded the prompt and made no step */
    double denoise_seconds;             /* passes with a step */
    size_t kv_bytes;                    /* keys and values at the end */
} dgemma_stats;

/* Runs one request to its end. `on_event` and `stats` may be NULL. */
DGEMMA_API dgemma_status dgemma_generate(dgemma_engine *engine, const dgemma_request_options *opt,
                                         dgemma_event_fn *on_event, void *user, dgemma_stats *stats,
                                         dgemma_error *err);

#ifdef __cplusplus
}
#endif

#endif
