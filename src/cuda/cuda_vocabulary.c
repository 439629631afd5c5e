/* The vocabulary end of backend_stages.h, put together from the arithmetic of cuda_words.h. */
#include "base/common.h"
#include "cuda/cuda_internal.h"

static dg_cuda_findings found_from(const dg_cuda_findings *f, int first)
{
    return (dg_cuda_findings){f->entropy + first,
                              f->argmax + first,
                              f->drawn + first,
                              f->logprob + first,
                              f->top_logprob + first * DG_CUDA_MAX_TOP,
                              f->top_id + first * DG_CUDA_MAX_TOP,
                              f->gathered + first};
}

/* z of n rows; with a table in slabs also what there is to say of its chunks. */
static void head(dg_cuda *cu, const dg_vocabulary_args *a, int first, dg_cuda_words_args *args)
{
    int n = args->n_row, n_embd = a->table->n_in;
    const float *x = a->x + (size_t)first * (size_t)n_embd;
    const dg_cuda_matrix *table = dg_cuda_head_of((const dg_cuda_weight *)a->table->data);
    dg_cuda_rows rows = dg_cuda_rows_for(table, cu->rows.data);
    if (cu->headed == a->x)
        rows = dg_cuda_rows_from(rows, first);
    else
        dg_cuda_failed(cu, dg_cuda_narrow(cu->stream, rows, x, n, n_embd), "the head");
    args->measured = table->slabs;
    if (args->measured)
        dg_cuda_failed(cu, dg_cuda_words_head(cu->stream, args, table, rows), "the head");
    else
        dg_cuda_failed(cu,
                       dg_cuda_product(
                           cu->stream,
                           &(dg_cuda_product_args){.n_row = n,
                                                   .x = rows,
                                                   .alpha = 1,
                                                   .n_part = 1,
                                                   .part = {{dg_cuda_matrix_of(a->table), args->w.z,
                                                             (size_t)a->table->n_out}}}),
                       "the head");
}

/* Logits need not be kept: statistics, a plain draw and the soft embedding do without them. Then
 * more rows fit, which share one reading of the table. */
static bool without_z(const dg_cuda *cu, const dg_weight *table)
{
    const dg_cuda_shape *s = &cu->shape;
    return dg_cuda_matrix_of(table)->slabs && !cu->batch->given && !cu->batch->out.logits &&
           !s->changed && !s->special && !s->listed && !s->asked;
}

static void read_rows(dg_cuda *cu, const dg_vocabulary_args *a, int first, int n)
{
    const dg_batch *b = cu->batch;
    int n_vocab = a->table->n_out;
    size_t words = (size_t)n * (size_t)n_vocab, before = (size_t)first * (size_t)n_vocab;
    /* p's memory holds the logits that a watcher wants, before p needs it */
    float *logits = b->out.logits && !b->given ? cu->words.p : NULL;
    const dg_cuda_matrix *table = dg_cuda_soft_of((const dg_cuda_weight *)a->table->data);
    bool forgets = without_z(cu, a->table);
    dg_cuda_words_args args = {
        .w = forgets ? dg_cuda_words_without_z(cu->words) : cu->words,
        .n_row = n,
        .n_vocab = n_vocab,
        .row = cu->on_device.word + first,
        .softcap = a->softcap,
        .given = b->given != NULL,
        .logits = logits,
        .changed = cu->shape.changed,
        .special = cu->shape.special,
        .listed = cu->shape.listed,
        .form = table->slabs && !b->given ? dg_cuda_form_of(table->type) : DG_CUDA_F32,
        .leaves = forgets || (table->slabs && !b->given && cu->shape.soft && !logits),
        .drop = cu->exact ? 0 : DG_CUDA_SOFT_DROP,
        .gathers = !cu->exact,
        .out = found_from(&cu->found, first)};
    if (b->given)
        cu->base.upload(&cu->base, cu->words.z, b->given + before, words * sizeof(float));
    else
        head(cu, a, first, &args);
    dg_cuda_failed(cu, dg_cuda_words_find(cu->stream, &args), "the vocabulary");
    if (cu->shape.asked)
        dg_cuda_failed(cu, dg_cuda_words_answer(cu->stream, &args), "the vocabulary");
    if (logits)
        cu->base.download(&cu->base, b->out.logits + before, logits, words * sizeof(float));
    if (!cu->shape.soft)
        return;
    if (first + n == b->n_row - b->n_encode)
        dg_cuda_results_are_there(cu);
    if (!cu->error)
        dg_cuda_failed(cu,
                       dg_cuda_words_soft(cu->stream, &args, table, dg_cuda_matrix_of(a->table),
                                          a->soft_scale),
                       "the soft embedding");
}

void dg_cuda_vocabulary_stage(dg_backend *be, const dg_vocabulary_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    int n = cu->batch->n_row - cu->batch->n_encode;
    int most = dg_min(n, without_z(cu, a->table) ? cu->word_rows : DG_CUDA_WORD_ROWS);
    for (int first = 0; !dg_cuda_idle(cu) && first < n; first += most)
        read_rows(cu, a, first, dg_min(most, n - first));
    cu->headed = NULL;
}
