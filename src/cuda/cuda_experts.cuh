/* What the parts of the experts share: how rows are sorted, and what a launch that streams weights
 * is told. cuda_experts.cu puts them together. */
#ifndef DG_CUDA_CUDA_EXPERTS_CUH
#define DG_CUDA_CUDA_EXPERTS_CUH

#include "cuda/cuda_math.h"
#include "cuda/cuda_product.cuh"

/* ---- sorting (cuda_routes.cu): a pair is (row, choice), numbered row * n_used + choice; it gets a
 * place among those of its expert ---- */

/* Some of an expert's rows, as places: what one reading of its weights is multiplied with. */
struct dg_expert_piece {
    int expert, first, n, unused;
};

/* DG_GROUP_ROWS: of a piece for warpgroups. */
enum { DG_PIECE_ROWS = 32, DG_GROUP_ROWS = 128, DG_PIECE_COUNTERS = 2 };

/* Rows as bytes (h, or x for weights of four bits), in units of 64 values: 64 bytes, then the
 * factors of the two blocks of 32 as floats; nothing up to a multiple of 16. */
enum { BLOCKS_FACTORS = 64, BLOCKS_UNIT = 80 };

typedef struct dg_byte_blocks {
    const uint16_t *h; /* halves [n_row, ld], ld a multiple of 64 */
    int n_row, ld;
    bool groups;        /* both blocks of a unit have the same factor */
    unsigned char *out; /* [n_row][ld / 64][BLOCKS_UNIT] */
} dg_byte_blocks;
cudaError_t dg_narrow_blocks(cudaStream_t stream, const dg_byte_blocks *rows);

typedef struct dg_sort_job {
    const int32_t *expert; /* of a pair */
    int n_pair, n_used, n_expert;
    int piece_rows;         /* at most, a multiple of 8 */
    int32_t *start;         /* [n_expert + 1], places of an expert's pairs */
    int32_t *row;           /* [n_pair]: the row at a place */
    int32_t *place;         /* [n_pair]: where a pair went */
    dg_expert_piece *piece; /* those of experts with most rows first, or in_turn */
    int32_t *n_piece;
    uint32_t *done;       /* of a piece, set to zero */
    int32_t *counter;     /* [DG_PIECE_COUNTERS], set to zero */
    dg_expert_tile *tile; /* [n_tile]: experts' rows in tiles, the rest of them empty */
    int n_tile;
    dg_byte_blocks groups; /* rows of x to be made bytes; out NULL: none */
    bool older_rows;       /* x was there before the launch before this one */
    bool in_turn;          /* pieces of many rows and of few in turn */
} dg_sort_job;

/* Pieces and tiles that so many pairs can have at most. */
int dg_most_pieces(int n_pair, int n_expert);
int dg_most_tiles(int n_pair, int n_expert);

/* Rows of x as bytes (cuda_bytes.cuh), in units of 256 values. A unit is 256 bytes; the sums of
 * each 32, as two halves whose sum they are: multiples of 64, then the rest; the factor as a float;
 * nothing up to a multiple of 64. */
enum { BYTE_SUMS = 256, BYTE_FACTOR = 288, BYTE_UNIT = 320 };

typedef struct dg_byte_rows {
    const uint16_t *x; /* halves [n_row, ld] */
    int n_row, ld, n_unit;
    unsigned char *out; /* [n_row][n_unit][BYTE_UNIT]; NULL: not wanted */
} dg_byte_rows;

/* In one launch, as neither needs the other. */
cudaError_t dg_sort_pairs(cudaStream_t stream, const dg_sort_job *job, const dg_byte_rows *rows);

/* ---- a row's experts, in the order of its choices ---- */

typedef struct dg_combine_job {
    dg_cuda_rows in; /* down's results, at places; ld a multiple of 8 */
    const int32_t *place;
    const float *weight;
    float *y;
    size_t ldy;
    int n_row, n_used, n_embd;
} dg_combine_job;
cudaError_t dg_combine(cudaStream_t stream, const dg_combine_job *job);

/* ---- streaming weights (cuda_stream.cuh) ---- */

typedef struct dg_stream_job {
    int n_expert, n_pair, piece_rows;
    const dg_expert_piece *piece;
    const int32_t *n_piece;
    int32_t *next;      /* items that were taken */
    uint32_t *done;     /* of a piece: warps whose part of h is there; NULL: nobody waits for it */
    const int32_t *row; /* of a place; NULL: x is sorted */
    const unsigned char *x;
    size_t x_bytes;            /* of a row */
    const unsigned char *w[2]; /* gate and up; down twice */
    const float *scale[2];
    size_t mat_bytes;
    int tiles, n_group, n_unit; /* of the packed matrices */
    int share;                  /* tiles of a group that an item has */
    int n_stage;
    bool down;
    bool follows_stream; /* the launch is the first behind another stream's work */
    bool before_down;    /* down's launch is the next */
    bool read_once;      /* few experts have a second piece that reads the same weights */
    float factor;
    dg_cuda_rows out; /* h, or down's results, both at places */
    uint32_t zero;    /* 0, which the compiler does not know */
} dg_stream_job;

/* ---- many rows: warpgroups (cuda_experts_groups.cu). n_expert, mat_bytes, tiles, n_group and
 * n_unit of the job are set; piece_rows is DG_GROUP_ROWS ---- */

bool dg_has_expert_groups(dg_dtype type);
cudaError_t dg_expert_groups(cudaStream_t stream, const dg_stream_job *job, dg_dtype type);

/* ---- what adapters add (cuda_adapters_experts.cu) ---- */

/* To gate and up: behind their launch, h of the pairs that are changed is made anew. */
typedef struct dg_adapt_gates_args {
    dg_cuda_adapted_experts adapted;
    dg_cuda_rows x; /* as the adapters read it */
    int n_out, n_in;
    const dg_expert_tile *tile; /* [n_tile] */
    int n_tile;
} dg_adapt_gates_args;
cudaError_t dg_adapt_gates(cudaStream_t stream, const dg_stream_job *gates, dg_dtype type,
                           const dg_adapt_gates_args *a);

/* To down: behind the sum over a row's experts. */
typedef struct dg_adapt_choices_args {
    dg_cuda_adapted rows;
    const dg_low_rank *low;
    int n_row, n_used, n_out, n_in;
    const int32_t *expert, *place;
    const float *weight;
    dg_cuda_rows h; /* at places, times 1 / alpha */
    float alpha;
    float *y;
    size_t ldy;
} dg_adapt_choices_args;
cudaError_t dg_adapt_choices(cudaStream_t stream, const dg_adapt_choices_args *a);

#endif
