/* Shared by the files of the CPU backend. */
#ifndef DG_CPU_CPU_INTERNAL_H
#define DG_CPU_CPU_INTERNAL_H

#include "backend/kv_layout.h"
#include "base/arena.h"
#include "base/common.h"
#include "base/pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"

/* Columns of a matrix that one task takes, and how many values along k it packs at a time: a packed
 * panel (16 KiB) stays in the first-level cache, and the slice of x that it meets (256 rows: 256
 * KiB) in the second. */
enum { TASK_COLS = 64, SLICE_K = 256 }; /* SLICE_K: a multiple of every block */

/* Rows that one task of a large product takes: their slice of x is 512 KiB. With 256 the vision
 * tower gains 1 %, and block types are widened twice as often. */
enum { MATMUL_ROWS = 512 };

/* Rows times heads that one attention task takes at most, in floats and in products of bfloat16
 * numbers, which say how many they like: each task reads its keys and values anew, and packs them
 * where they do not lie in panels. And at least, where that gives all threads work. */
enum { ATTENTION_ROWS = 128, ATTENTION_LINES = 256, ATTENTION_LEAST = 32 };

/* Keys that products of bfloat16 numbers take together at most, and the least head that is worth
 * them: smaller ones keep to floats, which give the same bits everywhere. */
enum { ATTENTION_RUN = 4 * DG_PAGE, BFLOAT_HEAD = 256 };

/* Parts that the keys before a canvas are cut into, with tasks of their own, in such products, and
 * keys from which on they are: threads are not equally fast, and with few tasks most of them wait
 * for the slowest. */
enum { ATTENTION_PARTS = 4, PARTED_KEYS = 4096 };

/* Floats between the lines of scores and of sums beyond what they hold: at powers of two lines
 * drive each other out of the first-level cache. */
enum { LINE_ROOM = 16 };

/* Values along k from which on weights are multiplied as bytes where the processor can. */
enum { BYTES_IN = 640 };

/* Patches that the vision tower's matrices take together: bounds their scratch. */
enum { VISION_ROWS = 1024 };

/* Words that the vocabulary end looks at together, and the finer tile in which a draw is located.
 */
enum { VOCAB_TILE = 4096, DRAW_TILE = 512 };

/* Ranks of words that a filter tells apart. */
enum { DRAW_BINS = DG_DRAW_RANKS * DG_DRAW_NATS };

/* Words of a tile below which a row adds them one by one, and words that are widened for that
 * together: 512 KiB of 256 columns, which stay in the second-level cache. */
enum { SOFT_FEW = VOCAB_TILE / 16, SOFT_WORDS = 512, SOFT_COLS = 256 };

/* What one thread needs for itself. */
typedef struct dg_cpu_worker {
    float *panel;    /* [max(SLICE_K, max_head_dim, DG_PAGE)][DG_PANEL], or a page of a head's
                        values in bfloat16 products */
    float *q;        /* [lines][max_head_dim], lines being ATTENTION_ROWS, or those that bfloat16
                        products take if they are more */
    float *out;      /* [lines][max_head_dim + LINE_ROOM] */
    float *score;    /* [lines][DG_PAGE], or [a run's keys + LINE_ROOM] in bfloat16 products */
    uint16_t *share; /* [lines][a run's keys] of those */
    void *keys;      /* that are kept as bytes, or values: a page of floats, a run of bfloat16
                        numbers */
    float *row;      /* [max(VOCAB_TILE, n_embd, n_expert)] */
    float *widened;  /* [SLICE_K * TASK_COLS] a piece of a weight of a block type as floats, or
                     panels of bfloat16 numbers */
    dg_qpanel *qpanel;
    dg_byte_panel *bpanel; /* [DG_BYTE_PANELS] */
    float *sums;           /* [MATMUL_ROWS][TASK_COLS] of a product of narrow numbers */
    dg_qmade *made;        /* [DG_QSLICE][DG_QBLOCKS] words turned for the soft embedding */
    dg_likely *kept;       /* [VOCAB_TILE] words of a tile that count for it */
    uint16_t *slot;        /* [VOCAB_TILE] what a tile's words are to a filter, or where they lie */
    float *words;          /* [SOFT_WORDS][SOFT_COLS] */
    bool asked;            /* the last task of experts asked for what this one begins with */
} dg_cpu_worker;

/* The vision tower's pass and scratch. */
typedef struct dg_cpu_vision {
    const dg_vision_batch *batch;
    dg_vision_plan plan;

    void *scratch; /* allocated by vision_plan() in one piece */
    dg_cpu_worker *worker;
    float *q, *k, *v;  /* [n_patch][n_head * head_dim]; the heads' results take the place of q */
    float *normed;     /* [VISION_ROWS][max(n_embd, n_pixel)] */
    float *wide;       /* [VISION_ROWS][2 * n_ff] */
    float *clipped;    /* [VISION_ROWS][max(n_embd, n_ff, n_head * head_dim)] */
    uint16_t *rounded; /* [VISION_ROWS][dg_cpu_padded(the widest input)] rows as bfloat16 numbers */
    uint16_t *keys, *values;    /* a picture's, as panels: see cpu_vision_heads.c */
    struct dg_cpu_heads *heads; /* [threads] */
} dg_cpu_vision;

/* What one part of the keys comes to for a line, beside the sums of its values. */
typedef struct dg_cpu_part {
    float against; /* as in dg_cpu_lines */
    double sum;    /* of the shares */
} dg_cpu_part;

typedef struct dg_cpu {
    dg_backend base;
    dg_kernels k;
    bool integer; /* products on quantised weights in whole numbers */
    bool bfloat;  /* products of bfloat16 numbers with instructions for them: of the vision tower's
                     weights, and of large heads' queries, keys and values */
    dg_pool *pool;
    dg_cpu_observe_fn *observe; /* or NULL */
    void *observe_arg;
    const dg_batch *batch;
    bool adapted; /* some of its segments have adapters */
    dg_plan plan;

    dg_cpu_worker *worker; /* [threads] of this pass: the plan's, or the vision tower's */

    dg_cpu_vision vision;

    /* scratch, allocated by plan() in one piece */
    void *scratch;
    dg_cpu_worker *plan_worker;
    float *normed;         /* [n_row][n_embd] */
    float *k_row, *v_row;  /* [n_row][max_kv_dim] keys and values on their way into the cache */
    unsigned char *canvas; /* the canvases' pages of one layer; see dg_cpu_keys_at */
    float *wide;           /* [n_row][2 * n_ff] */
    float *router;         /* [n_row][n_expert] */
    int *pair_of;          /* [n_row * n_used] pairs (row, choice) sorted by expert */
    int *expert_start;     /* [n_expert + 1] */
    int *active;           /* [n_expert] experts that have rows */
    float *expert_x;       /* [n_row * n_used][n_embd] gathered inputs, then outputs */
    float *expert_h;       /* [n_row * n_used][2 * n_ff_expert] */
    dg_qpair *q_rows;      /* rows that products take, as whole numbers */
    dg_qpair *q_expert;    /* those of experts, which start with rows that lie together; or the same
                              rows once more, where products take them in both ways */

    /* attention's parts; the sums of the first lie where the result will, those of others in the
     * memory of expert_x */
    dg_cpu_part *part; /* [ATTENTION_PARTS][n_row][n_head] */
    float *part_sums;  /* [ATTENTION_PARTS - 1][n_row][n_head][head_dim] */

    /* the vocabulary end */
    float *tile[2];    /* [n_row][VOCAB_TILE] each: one tile is looked at, the next one is made; the
                          second is the memory of expert_h */
    double *draw_mass; /* [n_row][draw tiles]: sum of exp(z - draw_shift) */
    float *draw_shift; /* [n_row][vocabulary tiles]: the running maximum when the tile was seen */
    struct dg_vocab_row *vocab;      /* [n_row] */
    float **soft;                    /* [n_row] each row's soft embedding, or NULL */
    struct dg_soft_row *soft_row[2]; /* [n_row] each: words of the tile and of the last one */
    dg_qpair *q_soft; /* what is kept, quantised: slices of words, pairs of rows, DG_QBLOCKS */
    double *bin_mass; /* [n_row][DRAW_BINS]: sum of e^(y - the bin's lower edge), for filters; the
                         memory of expert_x */
    uint32_t *bin_count; /* [n_row][DRAW_BINS] */
    int *filtered;       /* [n_row] rows that are walked twice */
} dg_cpu;

static inline dg_cpu *dg_cpu_of(dg_backend *be)
{
    return (dg_cpu *)be;
}

/* ---- scratch: laid out twice, first to measure (no arena, nothing is written) ---- */

typedef struct dg_cpu_taker {
    dg_arena arena;
    size_t need;
} dg_cpu_taker;

void *dg_cpu_take(dg_cpu_taker *t, size_t n, size_t size);

/* What each thread needs for heads of max_head_dim, whose keys are kept as kv_type; `row` as in
 * dg_cpu_worker. */
dg_cpu_worker *dg_cpu_take_workers(const dg_cpu *cpu, dg_cpu_taker *t, int max_head_dim,
                                   dg_dtype kv_type, size_t row);

/* ---- cpu_matmul.c ---- */

/* Values [first, first + n) of a row of matrix `mat`, whole blocks, as floats. */
void dg_cpu_widen(const dg_cpu *cpu, float *out, const dg_weight *w, int mat, int row, int first,
                  int n);

/* y[r][c] = sum_k x[r][k] * W[c][k] for columns [first_col, end_col) of matrix `mat`, on this
 * thread. With q the product is one of whole numbers, with b one of bfloat16 numbers, and x is not
 * looked at. */
typedef struct dg_cpu_matmul {
    float *y;
    const float *x;
    size_t ldy, ldx;
    int n_row;
    const dg_weight *w;
    int mat;
    int y_col;         /* the column that y starts with */
    int q_row;         /* the row of q that y starts with */
    const dg_qpair *q; /* rows of n_in values, quantised; NULL: none */
    const uint16_t *b; /* rows of dg_cpu_padded(n_in) bfloat16 numbers; NULL: none */
    int soon;          /* behind the last column that this thread will take next; 0: none */
    const struct dg_cpu_matmul *next; /* what this thread multiplies next, from next_col on … */
    int next_col;                     /* … and NULL where that is not known */
    bool asked;                       /* this is what was next the last time */
    int batch_row;                    /* the batch's row that y starts with, for adapters */
} dg_cpu_matmul;
void dg_cpu_matmul_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker);

/* All columns, on the pool. */
void dg_cpu_matmul_run(dg_cpu *cpu, const dg_cpu_matmul *m);

/* Products of the same rows, which are quantised once where a weight asks for it. The first product
 * takes all of them, each other one those from its q_row on. Up to MATMUL_GROUP. `made`: how each
 * row is made first; NULL: they are there. Adapters have had their part when it returns. */
enum { MATMUL_GROUP = 3 };
typedef struct dg_cpu_made dg_cpu_made;
void dg_cpu_matmul_group(dg_cpu *cpu, const dg_cpu_matmul *m, int n, const dg_cpu_made *made);

/* n up to what the products of bfloat16 numbers of every instruction set take. */
static inline int dg_cpu_padded(int n)
{
    return dg_ceil_div(n, DG_BFLOAT_STEP) * DG_BFLOAT_STEP;
}

/* Value k of a column in its panel. */
static inline size_t dg_cpu_in_panel(int beside, int k, int col)
{
    return (size_t)((k / beside * DG_PANEL + col % DG_PANEL) * beside + k % beside);
}

/* Row `row` of x, rows of dg_cpu_padded(n) bfloat16 numbers as products take them, from n floats.
 */
void dg_cpu_round_row(const dg_cpu *cpu, uint16_t *x, int row, const float *from, int n);

/* ---- cpu_adapters.c: what adapters add to products ---- */

/* Some rows of this pass have an adapter that changes the weight. */
static inline bool dg_cpu_is_adapted(const dg_cpu *cpu, const dg_weight *w)
{
    return cpu->adapted && w->adapter;
}

/* Adds to all rows of a product what the adapters of their segments do, on the pool. */
void dg_cpu_adapt(dg_cpu *cpu, const dg_cpu_matmul *m);

/* The same for rows that are all of one segment, on this thread; q and batch_row are not looked at.
 */
void dg_cpu_adapt_rows(const dg_cpu *cpu, const dg_cpu_matmul *m, const dg_segment *seg,
                       int worker);

/* ---- cpu_quantised.c ---- */

/* Products with this weight are products of whole numbers. */
bool dg_cpu_integer(const dg_cpu *cpu, const dg_weight *w);

/* How rows lie for products with this weight. */
dg_qway dg_cpu_way(const dg_cpu *cpu, const dg_weight *w);

/* Rows of n_in numbers, whatever products take them. */
size_t dg_cpu_qrows_bytes(size_t n_row, int n_in);

/* Row from_row of rows of n_in numbers, as row to_row of others. */
void dg_cpu_copy_row(dg_qpair *to, int to_row, const dg_qpair *from, int from_row, int n_in,
                     dg_qway way);

/* Row `row` of those that start at `rows`, as products with this weight take it. */
void dg_cpu_quantise_row(const dg_cpu *cpu, dg_qpair *rows, int row, const float *x,
                         const dg_weight *w);

/* Rows of floats, ldx apart, as products take them, on the pool: in up to two ways, each the one of
 * a weight. `made` as in dg_cpu_matmul_group. */
typedef struct dg_cpu_quantised {
    const dg_weight *w;
    dg_qpair *to;
} dg_cpu_quantised;
void dg_cpu_quantise(dg_cpu *cpu, const dg_cpu_quantised *way, int n_way, const float *x,
                     size_t ldx, int n_row, const dg_cpu_made *made);

/* ---- cpu_kv.c: pages ----
 *
 * Each group has a slab of address space for all the pages it may come to have; memory is behind
 * those that are in use. In a page each layer has its place: K [n_kv_head][DG_PAGE][head_dim], then
 * V alike. Heads that meet products of bfloat16 numbers have the order of those: of K panels of
 * DG_PANEL keys, values of a key along k, and of V panels of DG_PANEL columns, keys along k. Where
 * numbers are bytes (kv_numbers.h) they lie in the same orders, and behind each head's numbers are
 * its factors, [DG_PAGE][dg_kv_factors()]. A canvas's own pages have dg_kv_canvas_type(). */

struct dg_kv_store {
    dg_kv_layout layout;
    int beside; /* of panels (see dg_bkernels); 0: no head lies in them */
    struct {
        unsigned char *base;
        size_t bytes;
    } slab[DG_KV_GROUPS];
};

dgemma_status dg_cpu_kv_open(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                             size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err);
void dg_cpu_kv_close(dg_backend *be, dg_kv_store *kv);
bool dg_cpu_kv_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page);
void dg_cpu_kv_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page);
void dg_cpu_kv_copy(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from);
void dg_cpu_kv_save(dg_backend *be, const dg_kv_store *kv, dg_kv_group g, int32_t page, void *out);
void dg_cpu_kv_load(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page, const void *from);
void dg_cpu_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                    float *out);

/* One layer's keys and values in a page; those of a head lie together. */
typedef struct dg_cpu_keys {
    unsigned char *key, *value;
    size_t head_bytes;
    dg_dtype type;
} dg_cpu_keys;

/* A head's keys in a page, or its values. */
static inline unsigned char *dg_cpu_head_at(const dg_cpu_keys *page, int head, bool value)
{
    return (value ? page->value : page->key) + (size_t)head * page->head_bytes;
}

/* Page i of a segment's sequence, or of its canvas. */
dg_cpu_keys dg_cpu_keys_at(const dg_cpu *cpu, const dg_kv_store *kv, int layer,
                           const dg_segment *seg, int i, bool canvas);

/* Keys and values of this layer lie in panels. */
bool dg_cpu_kv_in_panels(const dg_kv_store *kv, int layer);

/* Puts a key of a head, or a value, into slot `slot` of its page, from head_dim floats; there is
 * room for them as numbers in `spare`. And back. */
typedef struct dg_cpu_slot {
    dg_cpu_keys page;
    int layer, head, slot;
    bool value;
} dg_cpu_slot;
void dg_cpu_kv_put(const dg_cpu *cpu, const dg_kv_store *kv, const dg_cpu_slot *at,
                   const float *from, uint16_t *spare);
void dg_cpu_kv_get(const dg_kv_store *kv, const dg_cpu_slot *at, float *out);

/* A head's keys in a page, or its values, as products take them: in rows of floats or bfloat16
 * numbers, or in panels. Bytes become that in `room`, which has place for a page. */
typedef struct dg_cpu_widened {
    const void *data;
    dg_dtype type;
} dg_cpu_widened;
dg_cpu_widened dg_cpu_kv_widened(const dg_cpu *cpu, const dg_kv_store *kv, int layer,
                                 const dg_cpu_keys *page, int head, bool value, void *room);

/* The place of the key's or value's number i in its head's page, in numbers. */
size_t dg_cpu_kv_place(const dg_kv_store *kv, int layer, int slot, bool value, int i);

/* ---- cpu_lines.c: query lines against pages of keys ---- */

/* Lines of `dim` values in w->q, their sums in w->out, scores in w->score. */
typedef struct dg_cpu_lines {
    const dg_cpu *cpu;
    dg_cpu_worker *w;
    int n, dim;
    bool sums_wait; /* those of the shares of a run, until its values are added */
    /* What shares are against, which a score may exceed by the kernels' slack; and their sums, up
     * to e^slack times the number of keys: e^64 with AMX. */
    float against[ATTENTION_LINES];
    double sum[ATTENTION_LINES];
} dg_cpu_lines;

/* A line's sums. */
static inline float *dg_cpu_line_sums(const dg_cpu_lines *l, int line)
{
    return l->w->out + (size_t)line * (size_t)(l->dim + LINE_ROOM);
}

/* Up to DG_PAGE keys, or values, in rows `stride` bytes apart. */
typedef struct dg_cpu_page {
    dg_dtype type;
    const void *data;
    size_t stride;
    int n;
} dg_cpu_page;

/* For each page in order: score its keys, soften every line, add its values. */
void dg_cpu_lines_begin(dg_cpu_lines *l);
void dg_cpu_lines_score(const dg_cpu_lines *l, const dg_cpu_page *keys);

/* Turns one line's n scores into exp(score - running maximum), zero outside [lo, hi), and carries
 * the line's sums over to the new maximum. */
void dg_cpu_lines_soften(dg_cpu_lines *l, int line, int lo, int hi, int n);
void dg_cpu_lines_add(const dg_cpu_lines *l, const dg_cpu_page *values);
void dg_cpu_lines_result(const dg_cpu_lines *l, int line, float *out); /* [dim] */

/* ---- cpu_runs.c: the same with products of bfloat16 numbers ---- */

/* Keys [first, n) of a run, which begins at a multiple of the kernels' keys, or their values; a
 * head's pages in panels. What lies before `first`, a multiple of DG_PAGE, is not looked at. */
typedef struct dg_cpu_run {
    const uint16_t *page[ATTENTION_RUN / DG_PAGE];
    int first, n;
    dg_bsoon soon; /* what is multiplied after it */
} dg_cpu_run;

/* Line `line` of the queries; then for each run in order: score its keys, soften every line, add
 * its values. */
void dg_cpu_runs_set_line(const dg_cpu_lines *l, int line, const float *q);
void dg_cpu_runs_score(const dg_cpu_lines *l, const dg_cpu_run *keys);
void dg_cpu_runs_soften(dg_cpu_lines *l, const dg_cpu_run *run, int line, int lo, int hi);
void dg_cpu_runs_add(dg_cpu_lines *l, const dg_cpu_run *values);

/* Scores and softens all lines in one go, which all see all of the run's keys, as many as there can
 * be. False where that is not possible: then they are scored and softened as above. */
bool dg_cpu_runs_score_soften(dg_cpu_lines *l, const dg_cpu_run *keys);

/* ---- cpu_rows.c: what is done row by row, on the pool ---- */

/* fn(cpu, args, row, worker) for each row. */
typedef void dg_cpu_row_fn(dg_cpu *cpu, const void *args, int row, int worker);
void dg_cpu_for_rows(dg_cpu *cpu, dg_cpu_row_fn *fn, const void *args, dg_rows rows);

/* How rows from `first` on are made, one by one, where a product is what they are made for. */
struct dg_cpu_made {
    dg_cpu_row_fn *fn;
    const void *args;
    int first;
};

/* y = RMSNorm(x, w) of rows n_embd long; w may be NULL, y may be x. */
typedef struct dg_cpu_norm_args {
    float *y;
    const float *x, *w;
} dg_cpu_norm_args;
void dg_cpu_norm_row(dg_cpu *cpu, const void *args, int row, int worker);
void dg_cpu_norm_rows(dg_cpu *cpu, float *y, const float *x, const float *w, dg_rows rows);

/* gate[r][0..n) = gelu(gate) * up, up being the second half of rows that are 2n long. */
typedef struct dg_cpu_gelu_args {
    float *gate_up;
    int n;
} dg_cpu_gelu_args;
void dg_cpu_gelu_row(dg_cpu *cpu, const void *args, int row, int worker);
void dg_cpu_gelu_rows(dg_cpu *cpu, float *gate_up, int n, int n_row);

/* ---- the stages ---- */
void dg_cpu_embed(dg_backend *be, const dg_embed_args *a);
void dg_cpu_condition(dg_backend *be, const dg_condition_args *a);
void dg_cpu_rope_table(dg_backend *be, const dg_rope_table_args *a);
void dg_cpu_qkv(dg_backend *be, const dg_qkv_args *a);
void dg_cpu_attention(dg_backend *be, const dg_attention_args *a);
void dg_cpu_attention_out(dg_backend *be, const dg_attention_out_args *a);
void dg_cpu_dense(dg_backend *be, const dg_dense_args *a);
void dg_cpu_route(dg_backend *be, const dg_route_args *a);
void dg_cpu_experts(dg_backend *be, const dg_experts_args *a);
void dg_cpu_join(dg_backend *be, const dg_join_args *a);
void dg_cpu_norm(dg_backend *be, const dg_norm_args *a);
void dg_cpu_vocabulary(dg_backend *be, const dg_vocabulary_args *a);
size_t dg_cpu_vocab_row_bytes(void);
size_t dg_cpu_soft_row_bytes(void);

size_t dg_cpu_vision_plan_bytes(dg_backend *be, const dg_vision_plan *plan);
dgemma_status dg_cpu_vision_plan(dg_backend *be, const dg_vision_plan *plan, dgemma_error *err);
void dg_cpu_vision_take_heads(dg_cpu_vision *v, const dg_cpu *cpu, const dg_vision_plan *p,
                              dg_cpu_taker *t);
/* Attention of a picture's heads with products of bfloat16 numbers; results take the place of the
 * queries. */
void dg_cpu_vision_heads(dg_cpu *cpu, const dg_vision_picture *p);
void dg_cpu_vision_begin(dg_backend *be, const dg_vision_batch *batch);
void dg_cpu_vision_embed(dg_backend *be, const dg_vision_embed_args *a);
void dg_cpu_vision_attention(dg_backend *be, const dg_vision_attention_args *a);
void dg_cpu_vision_mlp(dg_backend *be, const dg_vision_mlp_args *a);
void dg_cpu_vision_project(dg_backend *be, const dg_vision_project_args *a);

#endif
