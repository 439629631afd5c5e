/* An adapter on disk (LoRA): pairs of small matrices that change large ones of a model. Either a
 * folder as PEFT writes it, adapter_config.json beside adapter_model.safetensors, or a GGUF file as
 * llama.cpp reads it. Both become the same list, with the names of the Hugging Face checkpoint;
 * whether they fit a model is model/adapters.h's business. The parsers are pure functions of
 * buffers. */
#ifndef DG_FORMAT_ADAPTER_H
#define DG_FORMAT_ADAPTER_H

#include "base/file.h"
#include "format/gguf.h"
#include "format/safetensors.h"

/* How A and B of all experts lie in two tensors. */
typedef enum dg_adapter_form {
    DG_ADAPTER_PLAIN,   /* of one matrix: A [r, in], B [out, r] */
    DG_ADAPTER_STACKED, /* GGUF: A [n, r, in], B [n, out, r] */
    DG_ADAPTER_WOVEN    /* PEFT: A [n * r, in], row e * r + j; B [out, r * n], column j * n + e */
} dg_adapter_form;

/* A matrix that is changed: by B A alpha / r, or alpha / sqrt(r). */
typedef struct dg_adapter_part {
    char *module;        /* of the language model: "layers.3.self_attn.q_proj"; of woven experts
                            "layers.3.experts", whose shapes say which matrices are meant */
    bool encode, canvas; /* which rows it changes: prompts' and commits', canvases' */
    dg_adapter_form form;
    const dg_tensor *a, *b;
    double alpha;
    int rank;  /* as the config says; 0: it does not */
    bool root; /* rsLoRA */
} dg_adapter_part;

typedef struct dg_adapter {
    char *path;
    dg_adapter_part *part;
    size_t n_part;

    dg_file_map map;
    dg_safetensors safetensors; /* one of these two has the tensors */
    dg_gguf gguf;
} dg_adapter;

enum { DG_ADAPTER_PARTS = 1 << 14 };

/* DGEMMA_E_UNSUPPORTED names what such a file may have and we cannot apply: DoRA, biases, whole
 * matrices, other kinds of adapters. On failure *out is empty. */
dgemma_status dg_adapter_open(dg_adapter *out, const char *path, dgemma_error *err);
void dg_adapter_close(dg_adapter *a);

/* Whether `path` is one of the files that it is in. */
bool dg_adapter_reads(const dg_adapter *a, const char *path);

/* The parsers behind it; `where` names the file in errors. The tensors' buffer outlives *out. On
 * failure *out is to be closed all the same. */
dgemma_status dg_adapter_parse_peft(dg_adapter *out, const char *config, size_t config_len,
                                    const void *data, size_t size, const char *where,
                                    dgemma_error *err);
dgemma_status dg_adapter_parse_gguf(dg_adapter *out, const void *data, size_t size,
                                    const char *where, dgemma_error *err);

/* The values of a part for n_mat matrices [n_out, n_in]: host memory. */
typedef struct dg_adapter_values {
    int n_mat, n_out, n_in, rank;
    float *a; /* [n_mat][rank][n_in] */
    float *b; /* [n_mat][n_out][rank] */
    float factor;
} dg_adapter_values;

/* Beyond these nothing sensible is left, and floats end: of alpha, of a scale, and of what a weight
 * can be changed by. */
#define DG_ADAPTER_ALPHA  1e6
#define DG_ADAPTER_SCALE  1000.0f
#define DG_ADAPTER_CHANGE 1e6

enum { DG_ADAPTER_RANK = 256 }; /* as backends have room for: DG_MAX_RANK */

/* Whether the part's shapes are those of such matrices, at any rank. */
bool dg_adapter_fits(const dg_adapter_part *p, int n_mat, int n_out, int n_in);

/* DGEMMA_E_FORMAT: its shapes are not those of such matrices, contradict the config, or a value is
 * not a number; DGEMMA_E_LIMIT: the rank is beyond DG_ADAPTER_RANK. On failure *out is empty. */
dgemma_status dg_adapter_read(dg_adapter_values *out, const dg_adapter_part *p, int n_mat,
                              int n_out, int n_in, const char *where, dgemma_error *err);
void dg_adapter_values_clear(dg_adapter_values *v);

/* Room for one part more, which is zero; NULL: there are too many, or memory is out, as *err says.
 */
dg_adapter_part *dg_adapter_add(dg_adapter *a, const char *where, dgemma_error *err);

#endif
