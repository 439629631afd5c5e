/* Offline work on model files: look into them, check what a model computes, make some to measure.
 */
#ifndef DGEMMA_TOOLS_H
#define DGEMMA_TOOLS_H

#include "dgemma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- looking into a model ----  Reads headers only; one thread at a time. */

typedef struct dgemma_file dgemma_file;

typedef struct dgemma_tensor_info {
    const char
        *name; /* of the Hugging Face checkpoint, whatever the format; lives as long as the file */
    const char *type; /* "BF16", "Q4_K" … static */
    int n_dim;
    int64_t shape[4]; /* the last dimension runs fastest */
    size_t bytes;
    bool made; /* a quantised folder keeps it in parts: it is put together in memory when the model
                  is loaded, where others stay mapped */
} dgemma_tensor_info;

typedef struct dgemma_layer_info {
    bool sliding;
    int window; /* 0: global */
    int n_head, n_kv_head, head_dim;
} dgemma_layer_info;

/* *out belongs to the caller (dgemma_file_close). */
DGEMMA_API dgemma_status dgemma_file_open(dgemma_file **out, const char *path, dgemma_error *err);
DGEMMA_API void dgemma_file_close(dgemma_file *file); /* NULL is fine */

DGEMMA_API const char *dgemma_file_format(
    const dgemma_file *file); /* "safetensors", "GGUF"; static */
DGEMMA_API size_t dgemma_file_count(const dgemma_file *file);
DGEMMA_API void dgemma_file_tensor(const dgemma_file *file, size_t i,
                                   dgemma_tensor_info *info); /* i < count */
DGEMMA_API void dgemma_file_layer(const dgemma_file *file, int i,
                                  dgemma_layer_info *info); /* i < n_layer */

/* Whether the tensors are those that the config asks for, the vision tower's too: all there, each
 * of its shape and of a type that can be computed with. DGEMMA_E_FORMAT, DGEMMA_E_UNSUPPORTED: the
 * first one that is not; an engine would refuse the model with the same words. */
DGEMMA_API dgemma_status dgemma_file_check(const dgemma_file *file, dgemma_error *err);

/* The vision tower; n_layer 0: there is none. */
typedef struct dgemma_vision_info {
    int n_layer, n_embd, n_head, patch, pool, max_soft_tokens;
    bool bidirectional;  /* a picture's tokens see each other both ways */
    const char *ignored; /* what is wrong with the mmproj file beside the model, which is not used
                            for that; lives as long as the file. NULL: nothing */
} dgemma_vision_info;
DGEMMA_API void dgemma_file_vision(const dgemma_file *file, dgemma_vision_info *info);

/* What a picture of this size becomes: its size in pixels when the tower sees it, and what it costs
 * in tokens, without the two markers around it. budget 0: the model's own. DGEMMA_E_UNSUPPORTED:
 * there is no tower. */
DGEMMA_API dgemma_status dgemma_file_picture(const dgemma_file *file, int width, int height,
                                             int budget, int *seen_width, int *seen_height,
                                             int *n_tokens, dgemma_error *err);

/* ---- checking what a model computes ----
 *
 * A reference is a prompt, a canvas, and what a trusted implementation made of them in one step:
 * logits, and perhaps the residual stream before each layer, by which the first layer that is off
 * is found. The values that were published for the released checkpoint are built in. */

typedef struct dgemma_check {
    const char *what; /* "layers 0 to 5, then head" */
    double error;     /* of what the reference calls for */
    double allowed;
    bool passed;
} dgemma_check;

/* Told of each check as it is made. */
typedef void dgemma_check_fn(void *user, const dgemma_check *check);

/* Replays a reference on a model. `reference` is a JSON text (docs/verify.md); NULL: the published
 * values, which fit the released checkpoint alone. *passed says whether everything was within what
 * is allowed; the status only whether it could be computed. */
DGEMMA_API dgemma_status dgemma_verify(const dgemma_engine_options *opt, const char *reference,
                                       dgemma_check_fn *on_check, void *user, bool *passed,
                                       dgemma_error *err);

/* Writes what this model computes as a reference, JSON text in memory that dgemma_free gives back:
 * for a model that is known to be right, to hold a converted or quantised one against it. */
DGEMMA_API dgemma_status dgemma_verify_record(const dgemma_engine_options *opt, char **reference,
                                              dgemma_error *err);

/* ---- models to measure ----
 *
 * A GGUF file with seeded random weights in the shape and the types of a published one, with a
 * tokenizer and a chat template: speed and memory can be measured on it without the checkpoint. It
 * loads and runs like any other; what it says means nothing. */
typedef struct dgemma_synth_options {
    const char *path;
    const char *shape; /* "26b-a4b", the published one, or "tiny", for tests */
    const char *type;  /* "BF16", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_D", "Q4_0",
                          "Q4_1", "IQ4_NL", "IQ4_XS", "MXFP4_MOE", "Q2_K", "IQ3_XXS", "IQ2_S",
                          "IQ2_XXS",  "IQ1_S": as llama.cpp mixes types */
    int n_layer;       /* 0: all of the shape's */
    uint64_t seed;     /* the same seed, the same file */
    bool skewed;       /* the busiest expert has four times the mean of tokens; else all alike */
    const char *tokenizer; /* a tokenizer.json, a folder with one, or a GGUF file; NULL: made up */
    bool replace;          /* a file that is there already */
    dgemma_progress_fn *on_progress; /* or NULL; return false to give up */
    void *progress_user;
} dgemma_synth_options;

DGEMMA_API dgemma_synth_options dgemma_synth_defaults(void); /* 26b-a4b, Q4_K_M; no path */

/* Writes the file, beside its name as NAME.partial until it is whole; that is removed when
 * something fails. *bytes: its size. DGEMMA_E_ARG: an option makes no sense, or the file is there;
 * DGEMMA_E_IO: there is no room for it, which is looked at first, or it cannot be written. */
DGEMMA_API dgemma_status dgemma_synth(const dgemma_synth_options *opt, uint64_t *bytes,
                                      dgemma_error *err);

/* ---- models in other types ----
 *
 * From any form that is read to a GGUF file with weights of other types, as llama.cpp names their
 * mixtures, and with everything else that the model has but its vision tower, which can become a
 * file of its own; or from a Hugging Face folder to another one. Tensor by tensor: weights are read
 * from where they are mapped, and under 1 GiB of memory is taken. */

typedef struct dgemma_quantized {
    const char *name;        /* as in the file; until the callback returns */
    const char *from, *type; /* "BF16", "Q4_K"; static */
    int n_dim;
    int64_t shape[4]; /* the last dimension runs fastest */
    size_t bytes;
    double error; /* of a matrix: the root of the squares that its values are off, over that of
                     their own, both weighted as errors are; 0 where nothing is lost, and in a dry
                     run */
} dgemma_quantized;

/* Told of each tensor when it is written. */
typedef void dgemma_quantized_fn(void *user, const dgemma_quantized *tensor);

typedef struct dgemma_quantize_options {
    const char *model_path; /* what is read */
    const char *path;       /* what is written; a dry run does without */
    const char *type; /* in any case: "BF16", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_D",
                         "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "MXFP4_MOE"; "FP8", "NVFP4" and, where
                         path does not end in ".gguf", "BF16": a Hugging Face folder */
    const char *importance_path;    /* a file of llama.cpp's ("imatrix"), by which errors weigh; or
                                       NULL */
    const char *mmproj_path;        /* where the vision tower goes, as the mmproj file beside a
                                       GGUF model; NULL: nowhere */
    const dgemma_adapter *adapters; /* that become part of the weights; names are not looked at */
    size_t n_adapters;
    bool replace;                    /* a file that is there already */
    bool dry_run;                    /* tell of each tensor what it would be, and write nothing */
    int n_threads;                   /* 0: as many as there are processors */
    dgemma_quantized_fn *on_tensor;  /* or NULL */
    dgemma_progress_fn *on_progress; /* or NULL; return false to give up */
    void *user;
} dgemma_quantize_options;

typedef struct dgemma_quantize_result {
    const char *type;      /* by its true name; static */
    uint64_t bytes;        /* of the file */
    uint64_t tensor_bytes; /* of its tensors */
    uint64_t source_bytes; /* of those that they were made from */
    uint64_t n_weights;
    size_t n_tensors;
    size_t n_weighted; /* matrices that the importance file has weights for */
    size_t n_left_out; /* tensors of the source that are not in the file: the vision tower's, */
    size_t n_unknown;  /* and among them those that neither it nor the language model has */
    bool requantized;  /* some were of a narrower type already: what they had lost stays lost */
    double error;      /* as above, of all matrices together that are not F32 */
} dgemma_quantize_result;

DGEMMA_API dgemma_quantize_options dgemma_quantize_defaults(void); /* Q4_K_M; no paths */

/* Writes the file, beside its name as NAME.partial until it is whole; that is removed when
 * something fails, and written anew after a program was killed. DGEMMA_E_ARG: an option makes no
 * sense, the file is there, or is one of those that are read; DGEMMA_E_IO: there is no room for it,
 * which is looked at first, or it cannot be written; DGEMMA_E_UNSUPPORTED: a type that is read and
 * not written; otherwise what loading a model can meet. */
DGEMMA_API dgemma_status dgemma_quantize(const dgemma_quantize_options *opt,
                                         dgemma_quantize_result *result, dgemma_error *err);

/* ---- how far a model is from the one that it was made from ----
 *
 * Both answer prompts, and both look at the same canvases behind those prompts: the source's
 * answers at three levels of noise, with the source's soft embeddings. On the CPU; logits of
 * canvases with products in floats, so that they differ by the weights alone. */

typedef struct dgemma_compared {
    const char *prompt; /* as it was given; NULL: all of them */
    double error;       /* of logits: the root of the squares that they are off, over that of the
                           source's own */
    double divergence;  /* Kullback-Leibler, from the source's probabilities, at temperature 1:
                           nats for each position */
    double agreement;   /* of positions where both find the same token the most likely one */
    double source_steps, steps; /* a canvas, when each answers by itself */
} dgemma_compared;

enum { DGEMMA_MAX_COMPARED = 10000 };

typedef struct dgemma_compare_options {
    const char *model_path;     /* the source */
    const char *other_path;     /* what was made of it */
    const char *const *prompts; /* [n_prompts], each a chat's first turn */
    int n_prompts;              /* at most DGEMMA_MAX_COMPARED; 0: six that are built in */
    int n_threads;              /* 0: as many as there are processors */
    void (*on_prompt)(void *user, const dgemma_compared *one); /* or NULL */
    dgemma_progress_fn *on_progress; /* or NULL; return false to give up */
    void *user;
} dgemma_compare_options;

/* DGEMMA_E_ARG: they are not of one shape, or a prompt is NULL; otherwise what loading and running
 * models can meet. Both are in memory at a time, and their logits of a canvas: half a gigabyte for
 * the released model. */
DGEMMA_API dgemma_status dgemma_compare(const dgemma_compare_options *opt, dgemma_compared *total,
                                        dgemma_error *err);

/* ---- what matters of a model ----
 *
 * An importance file as llama.cpp has them ("imatrix"), for dgemma_quantize_options: for each
 * matrix, and for each expert's, the sums of the squares of its inputs while the model reads and
 * denoises a text. Computed on the CPU with products in floats. */

typedef struct dgemma_imatrix_options {
    const char *model_path;
    const char *text_path; /* UTF-8, at most 64 MiB; markers of turns in it are tokens */
    const char *path;      /* what is written: GGUF; the older form where it ends in ".dat" */
    bool replace;          /* a file that is there already */
    int n_chunks;          /* canvases of text to take at most; 0: all of them */
    int n_threads;         /* 0: as many as there are processors */
    dgemma_progress_fn *on_progress; /* or NULL; return false to give up */
    void *user;
} dgemma_imatrix_options;

typedef struct dgemma_imatrix_result {
    int n_chunks, chunk_tokens;
    size_t n_matrices; /* experts' matrices of a kind and layer count as one */
    size_t n_unused;   /* matrices of experts that the text did not reach */
} dgemma_imatrix_result;

/* Writes the file, beside its name as NAME.partial until it is whole. The number of threads does
 * not change it. DGEMMA_E_ARG: an option makes no sense, the file is there, or the text is shorter
 * than a canvas; otherwise what loading and running a model can meet. */
DGEMMA_API dgemma_status dgemma_imatrix(const dgemma_imatrix_options *opt,
                                        dgemma_imatrix_result *result, dgemma_error *err);

/* ---- constraints, without a model ----
 *
 * A constraint looked at by itself (docs/constraints.md): which texts are in its language, what
 * could come next, and texts of it drawn at random. Any thread; those that look at the same
 * constraint wait for each other. */

typedef enum dgemma_verdict {
    DGEMMA_ACCEPTED, /* the text is in the language */
    DGEMMA_PREFIX,   /* it is not, but something that begins with it is */
    DGEMMA_REJECTED  /* nothing that begins with it is */
} dgemma_verdict;

typedef struct dgemma_match {
    dgemma_verdict verdict;
    size_t n;        /* bytes of the text that something in the language begins with */
    bool next[256];  /* which bytes could come behind them */
    bool could_end;  /* it could end there */
    size_t n_tokens; /* special tokens that could come there */
} dgemma_match;

/* In the functions below a special token stands in a text by its name ("<|tool_call>", "<[48]>"),
 * and such a name is the token wherever that could come. */

/* DGEMMA_E_LIMIT: the text leads to where too much is possible. */
DGEMMA_API dgemma_status dgemma_constraint_check(dgemma_constraint *constraint, const char *text,
                                                 size_t len, dgemma_match *match,
                                                 dgemma_error *err);

/* A short rest of the text, such that both together are in the language, in memory that dgemma_free
 * gives back. DGEMMA_E_ARG: there is none. */
DGEMMA_API dgemma_status dgemma_constraint_complete(dgemma_constraint *constraint, const char *text,
                                                    size_t len, char **rest, size_t *rest_len,
                                                    dgemma_error *err);

/* The index-th text at random, of about `length` bytes where the language lets it be, in memory
 * that dgemma_free gives back. The same seed, the same texts. */
DGEMMA_API dgemma_status dgemma_constraint_random(dgemma_constraint *constraint, uint64_t seed,
                                                  uint32_t index, size_t length, char **text,
                                                  size_t *len, dgemma_error *err);

/* How large it is: nodes of the syntax, places and edges of the automaton that were looked at so
 * far, bytes of both. */
typedef struct dgemma_constraint_size {
    size_t n_nodes, n_places, n_edges, bytes;
} dgemma_constraint_size;
DGEMMA_API dgemma_constraint_size dgemma_constraint_measure(dgemma_constraint *constraint);

/* ---- how fast a model runs ----
 *
 * Passes over a model as requests make them, at fixed numbers of steps, and what the machine could
 * do at best, measured in the same run. Contexts hold keys and values of a few encoded tokens,
 * again and again: what attention costs does not depend on what they are. */

typedef enum dgemma_bench_kind {
    DGEMMA_BENCH_MACHINE, /* what runs, and the rates that it could reach */
    DGEMMA_BENCH_LOAD,
    DGEMMA_BENCH_PREFILL, /* a prompt of `context` tokens in pieces of `chunk` */
    DGEMMA_BENCH_STEP,    /* one denoise step of `batch` canvases behind `context` tokens each */
    DGEMMA_BENCH_BLOCK,   /* the commit of a canvas together with the next one's first step, and
                             its n_steps - 1 others */
    DGEMMA_BENCH_STAGE,   /* of a step: `name`, all its layers together */
    DGEMMA_BENCH_SKIPPED, /* `name`: why this step was not measured */
    DGEMMA_BENCH_PICTURE  /* a picture of `context` soft tokens through the vision tower */
} dgemma_bench_kind;

typedef struct dgemma_bench_rate {
    const char *name; /* "read", "int8 i8mm", … static */
    double rate;      /* bytes or operations a second, all threads together */
} dgemma_bench_rate;

/* One finding. Seconds are of one pass, one block, one prompt, one load. */
typedef struct dgemma_bench_result {
    dgemma_bench_kind kind;
    int n_threads; /* of the CPU; 0: a device computes */
    int context, batch, chunk, n_steps;
    const char *name; /* until the callback returns. STEP: NULL, or "constrained" */

    int n;                                    /* how often it was measured, after what warms up */
    double median, lower, upper, least, most; /* lower, upper: quartiles */
    double bytes,
        ops; /* STEP, PREFILL, PICTURE: that have to be read and computed, whatever the way */
    double attention_seconds; /* STEP on the CPU, of one: in attention (median) */
    double host_seconds; /* STEP on a GPU, of one: in which the GPU waited for the host (median) */
    double entropy;      /* STEP: of a row, in nats (mean) */
    double gathered;     /* STEP on a GPU: the share of rows that are sure enough for a soft
                            embedding of few words; below 0: nobody counts */

    /* STEP of the first batch behind a longer context than the first, not "constrained": by how
     * much longer it takes than one behind the first, as that was measured last (its attention on
     * the CPU, the whole step on a GPU), and how many operations more it has, which are attention's
     * and so in floats. 0: less than 0.1 ms, which is noise, or the first was not measured */
    double added, added_ops;

    /* MACHINE and STEP, until the callback returns */
    const dgemma_bench_rate *rates; /* the first is reading, measured once; of a STEP on the CPU the
                                       others are means of what was measured before and between its
                                       steps, on a GPU they are MACHINE's */
    size_t n_rates, best_float;     /* how many; which of them is the fastest in floats, 0: none */

    /* MACHINE */
    const char *device, *numerics, *model;
    int n_layers;

    /* LOAD, in bytes */
    size_t weight_bytes, work_bytes, resident_bytes, device_bytes;
    double first_pass;  /* seconds: memory is touched for the first time */
    size_t peak_bytes;  /* resident, after the passes of a STEP */
    size_t kv_bytes;    /* STEP: pages of keys and values */
    size_t above_bytes; /* STEP on a GPU: of its memory, beyond weights, keys and values */
} dgemma_bench_result;

/* False: give up (DGEMMA_E_CANCELLED). */
typedef bool dgemma_bench_fn(void *user, const dgemma_bench_result *result);

/* What is being done now, for whoever waits. False: give up. */
typedef bool dgemma_bench_watch_fn(void *user, const char *what);

enum { DGEMMA_BENCH_MAX_LIST = 32 };
typedef struct dgemma_bench_list {
    int at[DGEMMA_BENCH_MAX_LIST];
    int n;
} dgemma_bench_list;

typedef struct dgemma_bench_options {
    dgemma_engine_options engine; /* model_path, device, cpu, profile, kv_type; the number of
                                     threads is in the list below */
    const char *synthetic; /* a type as in dgemma_synth_options, in place of a model's file: made in
                              memory, where tensors of a type share their bytes */
    const char *shape;     /* likewise; NULL: "26b-a4b" */
    int n_layer;           /* likewise; 0: all */
    bool skewed;           /* likewise */

    /* Each list is gone through with the others at one value: the most threads, the first context,
     * the first batch. Empty: all processors, 1024 (or what the model has), 1. */
    dgemma_bench_list threads, contexts, batches;
    dgemma_bench_list chunks; /* of the prompt; empty: as long as passes of this device are */
    int prompt;               /* tokens; 0: 1024, or what the model has; -1: none */
    int picture;              /* soft tokens of one to look at; 0: none */
    int n_steps;              /* measured for each finding; 0: as many as take a few seconds */
    bool stages;              /* where the time of a step goes */
    bool answer;              /* canvases go on as those of an answer in n_steps steps (0: 16): its
                                 temperatures, and words stay that were accepted. False: random
                                 words in each step */
    float temperature;        /* what logits are divided by, which makes rows sure or unsure; 0:
                                 0.6. Not with `answer`, which has its own */
    bool no_rates;            /* do not measure the machine */
    dgemma_constraint *constraint; /* each step is measured a second time, its canvases held to
                                      this; or NULL. A synthetic model has made words */
    dgemma_bench_fn *on_result;
    dgemma_bench_watch_fn *on_watch; /* or NULL */
    void *user;
} dgemma_bench_options;

DGEMMA_API dgemma_bench_options dgemma_bench_defaults(void);

/* DGEMMA_E_ARG: an option makes no sense; otherwise what loading and running a model can meet. A
 * step that memory is too small for is told as skipped, and the others go on. */
DGEMMA_API dgemma_status dgemma_bench(const dgemma_bench_options *opt, dgemma_error *err);

/* Something that a model can run on, by the name that dgemma_engine_options.device takes. */
typedef struct dgemma_device {
    char name[16];                  /* "cpu", "cuda:0" */
    char description[160];          /* instruction sets, or the GPU's name and compute capability */
    size_t total_bytes, free_bytes; /* of its own memory; 0: it has none */
} dgemma_device;

/* Fills device[0 … cap) and says how many there are. *why, which may be NULL, is set where there is
 * no GPU: not in this build, no driver, none found. */
DGEMMA_API size_t dgemma_devices(dgemma_device *device, size_t cap, dgemma_error *why);

#ifdef __cplusplus
}
#endif

#endif
