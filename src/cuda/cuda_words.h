/* The two ends of the model on the device: rows of the embedding table, and what the vocabulary end
 * makes of the logits. As in cuda_math.h everything is enqueued, allocates
 * nothing and never waits, and a row's results depend on that row alone. */
#ifndef DG_CUDA_CUDA_WORDS_H
#define DG_CUDA_CUDA_WORDS_H

#include "cuda/cuda_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of the vocabulary end that are worked on together, with and without their logits, and the
 * words of a chunk: what the soft embedding takes or leaves of a row, and the grain in which a draw
 * is located. */
enum {
    DG_CUDA_WORD_ROWS = 256,
    DG_CUDA_WORD_GROUP = 4 * DG_CUDA_WORD_ROWS,
    DG_CUDA_WORD_CHUNK = 64,
    DG_CUDA_SURE_WORDS = 256,
    DG_CUDA_MAX_TOP = 20
};

/* The soft embedding leaves out chunks of words that have less than `drop` / number of chunks of a
 * row's mass: less than `drop` together. */
#define DG_CUDA_SOFT_DROP 0x1p-14f

/* A row is sure when all but less than this of its mass is in DG_CUDA_SURE_WORDS words or fewer:
 * its soft embedding is made of these (cuda_sure.cuh). */
#define DG_CUDA_SURE_DROP 0x1p-12f

typedef enum dg_cuda_draw {
    DG_CUDA_DRAW_PLAIN,
    DG_CUDA_DRAW_ARGMAX,
    DG_CUDA_DRAW_HEATED,
    DG_CUDA_DRAW_FILTERED
} dg_cuda_draw;

/* What a row is asked about words (dg_asked), and where the answers go. top_id NULL: nothing. */
enum { DG_CUDA_ASKED_TOP = 64, DG_CUDA_ASKED_CLASSES = 8 };
typedef struct dg_cuda_class_finding {
    double best, mass, inner, warm;
    int32_t id, drawn;
} dg_cuda_class_finding;
typedef struct dg_cuda_asked {
    const int32_t *id; /* [n_id] */
    const double *uniform;
    const uint8_t *class_of; /* [n_vocab] */
    int n_id;
    unsigned classes;
    float power;
    float *logprob, *top_logprob; /* [n_id], [DG_CUDA_ASKED_TOP] */
    dg_cuda_class_finding *found; /* [DG_CUDA_ASKED_CLASSES] */
    int32_t *top_id;              /* [DG_CUDA_ASKED_TOP] */
} dg_cuda_asked;

/* What the host says of one row, before each pass. */
typedef struct dg_cuda_word_row {
    double uniform;
    float *soft; /* [n_embd] in: the last step's; out: this one's. NULL: there is none */
    const int32_t *banned, *bias_id; /* ascending */
    const float *bias;
    int n_banned, n_bias, n_top;
    int first_step; /* soft does not hold anything yet */
    float temperature;
    dg_cuda_draw draw;
    float draw_temperature, top_p, min_p;
    int top_k;
    dg_cuda_asked asked;
} dg_cuda_word_row;

/* What comes back of all rows: arrays in one piece of memory, which may be the host's: they are
 * written once, and hardly read. */
typedef struct dg_cuda_findings {
    float *entropy;
    int32_t *argmax, *drawn;
    float *logprob, *top_logprob; /* [n], [n, DG_CUDA_MAX_TOP] */
    int32_t *top_id;
    int32_t *gathered; /* words of a sure row's soft embedding, or 0. NULL: nobody wants to know */
} dg_cuda_findings;

/* `bytes` of pinned host memory, a multiple of 16, by a kernel: as a graph's first it is done while
 * the graph begins, where a copy ahead of the graph would have the device wait for both. */
cudaError_t dg_cuda_take(cudaStream_t stream, void *to, const void *from, size_t bytes);

/* cos[r][i], sin[r][i] of position[r] * frequency[i], the product in float. */
typedef struct dg_cuda_angles {
    float *cos, *sin; /* [n_row, n_pair] */
    const float *frequency;
    int n_pair; /* 0: none */
} dg_cuda_angles;

/* x[r] = table[token[r]] * scale, or the row that feature[r] points to (NULL entry: none). Beside
 * that up to two tables of angles, which nothing waits for. */
typedef struct dg_cuda_lookup_args {
    float *x; /* [n_row, n_in] */
    const dg_cuda_matrix *table;
    float scale;
    const int32_t *token;
    const float *const *feature;
    int n_row;
    const int32_t *position; /* of rows, for angles */
    dg_cuda_angles angles[2];
} dg_cuda_lookup_args;
cudaError_t dg_cuda_lookup(cudaStream_t stream, const dg_cuda_lookup_args *a);

/* out = RMSNorm(soft of row r) * w; zero on a first step (cuda_residual.cu). The launch before may
 * write neither `row` nor what it points to. */
cudaError_t dg_cuda_soft_norm(cudaStream_t stream, dg_cuda_next out, const dg_cuda_word_row *row,
                              int n_row, int n, float eps);

/* out[r] = x[r] in the form of out. */
cudaError_t dg_cuda_narrow(cudaStream_t stream, dg_cuda_rows out, const float *x, int n_row, int n);

/* Scratch of the vocabulary end for up to DG_CUDA_WORD_GROUP rows, of which z and p have room for
 * DG_CUDA_WORD_ROWS. */
typedef struct dg_cuda_words {
    float *z; /* [rows, n_vocab]: logits, then (logits + bias) / temperature. NULL: they are not
                 kept, and p has all of this memory (dg_cuda_words_without_z) */
    void *p;  /* [rows, dg_cuda_ld(n_vocab)] e^(z - max) in the table's form; half precision: times
                 1024. Of a table in slabs e^z / 2^level of the chunk's maximum (cuda_words.cuh) */
    /* of each chunk, [rows, chunks]: its maximum and where that is, then, against the maximum, mass
     * = sum e^(z - top) and slope = sum (z - top) e^(z - top); conclude_rows makes the mass one
     * against the row's maximum */
    float *top, *mass, *slope;
    int32_t *top_at;
    double *sums; /* [rows, 2]: mass, and the maximum as a double */
    float *part;  /* [DG_CUDA_SOFT_PARTS, rows, n_embd] shares of the soft embedding */
    /* of rows that are sure: [rows] their number of words, 0: it is none; [rows,
     * DG_CUDA_SURE_WORDS] which, ascending, and what they weigh. Nothing else is written of them
     * for the product: what it makes of them is not used */
    int32_t *n_sure, *sure_id;
    float *sure_share;
    /* of each DG_CUDA_WORD_ROWS rows: */
    uint32_t *used; /* a bit for each chunk: whether any of them takes it (cuda_words.cuh) */
    float
        *weight; /* [chunks, DG_CUDA_WORD_ROWS] what p of a table in slabs is times: 2^(level of the
                    chunk's maximum - level of the row's), 0 where the row leaves the chunk out */
} dg_cuda_words;
enum { DG_CUDA_SOFT_PARTS = 6 };

size_t dg_cuda_words_bytes(int max_row, int n_vocab, int n_embd);
void dg_cuda_words_place(dg_cuda_words *w, void *memory, int max_row, int n_vocab, int n_embd);

/* The same memory without z: p of a table in slabs, of four times as many rows. */
static inline dg_cuda_words dg_cuda_words_without_z(dg_cuda_words w)
{
    w.p = w.z;
    w.z = NULL;
    return w;
}

/* z holds the raw products of n_row rows; row[] says what is wanted of them. */
typedef struct dg_cuda_words_args {
    dg_cuda_words w;
    int n_row, n_vocab;
    const dg_cuda_word_row *row; /* device */
    float softcap;
    bool given;        /* z is there already: nothing is processed */
    bool measured;     /* dg_cuda_words_head was there before */
    dg_cuda_form form; /* of p of a table in slabs, and so of what a chunk's words weigh in a draw;
                          DG_CUDA_F32: the table lies otherwise, or z is given */
    bool leaves;       /* that p is made together with the chunks' statistics; otherwise the soft
                          embedding makes it, or nobody. Without z it must be */
    float *logits;     /* device [n_row, n_vocab], a copy before the temperature; or NULL */
    bool changed;      /* some row has biases or bans: wants z */
    bool special;      /* some row does not draw plainly: wants z */
    bool listed;       /* log-probabilities are asked for: wants z */
    float drop;        /* DG_CUDA_SOFT_DROP, or 0: nothing */
    bool gathers;      /* the soft embedding of sure rows is gathered: not from tables of floats */
    dg_cuda_findings out;
} dg_cuda_words_args;
cudaError_t dg_cuda_words_find(cudaStream_t stream, const dg_cuda_words_args *a);

/* Answers what rows are asked, from z; after dg_cuda_words_find. */
cudaError_t dg_cuda_words_answer(cudaStream_t stream, const dg_cuda_words_args *a);

/* The product with a table that lies as slabs makes z, and what there is to say of each chunk, but
 * for rows with biases or bans, whose z is as the softcap gives it; dg_cuda_words_find follows. The
 * table may be a second one of E4M3 with rows of E4M3; p is of a->form all the same. */
cudaError_t dg_cuda_words_head(cudaStream_t stream, const dg_cuda_words_args *a,
                               const dg_cuda_matrix *table, dg_cuda_rows x);

/* soft = sum_v p_v table[v] * scale, of the rows that have one; after dg_cuda_words_find. What is
 * left out of a row weighs less than `drop` (2^-14) of its mass, of a sure row less than 2^-12; the
 * rest of the error is that of probabilities in 16 bits. A table of DG_FP8 is a turned one: p must
 * be halves, and is multiplied as E4M3 (cuda_soft_bytes.cu). `words`: the table that embeddings are
 * looked up in, which sure rows are gathered from. */
cudaError_t dg_cuda_words_soft(cudaStream_t stream, const dg_cuda_words_args *a,
                               const dg_cuda_matrix *table, const dg_cuda_matrix *words,
                               float scale);

/* A table's slabs of E4M3 for the soft embedding: words along k, columns up to a multiple of
 * DG_TURNED_COLUMNS. */
enum { DG_TURNED_COLUMNS = 256 };
size_t dg_cuda_turned_bytes(int n_out, int n_in);
cudaError_t dg_cuda_turn_slabs(cudaStream_t stream, void *turned, const void *slabs, int n_out,
                               int n_in);

#ifdef __cplusplus
}
#endif

#endif
