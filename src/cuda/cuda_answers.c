/* What requests ask about words (dg_asked): the questions go to the device with the batch, the
 * answers come back behind its results. */
#include <string.h>
#include "base/alloc.h"
#include "cuda/cuda_internal.h"

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static const dg_asked *asked_of(const dg_segment *s)
{
    return s->canvas && s->options ? s->options->asked : NULL;
}

/* Where the answers of a canvas of n rows lie behind each other. */
typedef struct answers {
    float *logprob, *top_logprob;
    dg_cuda_class_finding *found;
    int32_t *top_id;
} answers;

static size_t place_answers(answers *to, unsigned char *base, const dg_asked *a, int n_row)
{
    size_t n = (size_t)n_row, at = 0;
    struct {
        void **to;
        size_t bytes;
    } list[] = {
        {(void **)&to->logprob, n * (size_t)a->n_id * sizeof *to->logprob},
        {(void **)&to->found, n * DG_ASKED_CLASSES * sizeof *to->found},
        {(void **)&to->top_id, n * DG_ASKED_TOP * sizeof *to->top_id},
        {(void **)&to->top_logprob, n * DG_ASKED_TOP * sizeof *to->top_logprob},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *list[i].to = base ? base + at : NULL;
        at += rounded(list[i].bytes);
    }
    return at;
}

/* Room for the answers of this batch, here and there; nothing of it is known to graphs, which find
 * their way through the rows. */
bool dg_cuda_answers_room(dg_cuda *cu, const dg_batch *b)
{
    answers none;
    size_t need = 0;
    for (int i = 0; i < b->n_segment; i++)
        if (asked_of(&b->segment[i]))
            need += place_answers(&none, NULL, asked_of(&b->segment[i]), b->segment[i].n_row);
    cu->answer_bytes = need;
    if (need <= cu->answer_room)
        return true;
    cudaStreamSynchronize(cu->stream);
    dg_cuda_answers_free(cu);
    cu->answers = cu->base.alloc(&cu->base, need);
    if (!cu->answers || cudaMallocHost(&cu->host_answers, need))
        return false;
    cu->answer_room = need;
    return true;
}

void dg_cuda_answers_free(dg_cuda *cu)
{
    cu->base.free(&cu->base, cu->answers);
    cudaFreeHost(cu->host_answers);
    cu->answers = cu->host_answers = NULL;
    cu->answer_room = 0;
}

/* What a canvas adds to the batch's tail. Canvases share the classes of the one before. */
size_t dg_cuda_asked_bytes(const dg_cuda *cu, const dg_segment *s, const dg_asked *before)
{
    const dg_asked *a = asked_of(s);
    if (!a)
        return 0;
    size_t bytes = rounded((size_t)a->n_id * sizeof *a->id) +
                   rounded((size_t)s->n_row * DG_ASKED_CLASSES * sizeof(double));
    if (a->classes && (!before || before->class_of != a->class_of))
        bytes += rounded((size_t)cu->plan.n_vocab);
    return bytes;
}

/* The question of a canvas's first row; its answers are at *answered, which moves on. */
dg_cuda_asked dg_cuda_ask(dg_cuda *cu, const dg_segment *s, size_t *at, size_t *answered)
{
    const dg_asked *a = asked_of(s);
    if (!a)
        return (dg_cuda_asked){0};
    unsigned char *host = cu->on_host.tail + *at, *device = cu->on_device.tail + *at;
    size_t ids = rounded((size_t)a->n_id * sizeof *a->id);
    size_t draws = rounded((size_t)s->n_row * DG_ASKED_CLASSES * sizeof(double));
    memcpy(host, a->id, (size_t)a->n_id * sizeof *a->id);
    double *uniform = (double *)(void *)(host + ids);
    for (size_t i = 0; i < (size_t)s->n_row * DG_ASKED_CLASSES; i++)
        uniform[i] = a->found[i].uniform;
    *at += ids + draws;
    if (a->classes && cu->class_of != a->class_of) {
        memcpy(host + ids + draws, a->class_of, (size_t)cu->plan.n_vocab);
        cu->class_of = a->class_of;
        cu->device_class_of = device + ids + draws;
        *at += rounded((size_t)cu->plan.n_vocab);
    }
    answers to;
    size_t bytes = place_answers(&to, (unsigned char *)cu->answers + *answered, a, s->n_row);
    *answered += bytes;
    return (dg_cuda_asked){.id = (const int32_t *)(const void *)device,
                           .n_id = a->n_id,
                           .uniform = (const double *)(const void *)(device + ids),
                           .class_of = cu->device_class_of,
                           .classes = a->classes,
                           .power = a->power,
                           .logprob = to.logprob,
                           .found = to.found,
                           .top_id = to.top_id,
                           .top_logprob = to.top_logprob};
}

/* That of the row behind it. */
dg_cuda_asked dg_cuda_ask_next(dg_cuda_asked row)
{
    if (!row.top_id)
        return row;
    row.uniform += DG_ASKED_CLASSES;
    row.logprob += row.n_id;
    row.found += DG_ASKED_CLASSES;
    row.top_id += DG_ASKED_TOP;
    row.top_logprob += DG_ASKED_TOP;
    return row;
}

static void hand_out(const dg_asked *a, const answers *from, size_t n)
{
    memcpy(a->logprob, from->logprob, n * (size_t)a->n_id * sizeof *a->logprob);
    memcpy(a->top_id, from->top_id, n * DG_ASKED_TOP * sizeof *a->top_id);
    memcpy(a->top_logprob, from->top_logprob, n * DG_ASKED_TOP * sizeof *a->top_logprob);
    for (size_t i = 0; i < n * DG_ASKED_CLASSES; i++) {
        const dg_cuda_class_finding *f = &from->found[i];
        if (a->classes >> i % DG_ASKED_CLASSES & 1)
            a->found[i] = (dg_class_finding){.best = f->best,
                                             .mass = f->mass,
                                             .inner = f->inner,
                                             .warm = f->warm,
                                             .id = f->id,
                                             .drawn = f->drawn};
    }
}

void dg_cuda_answers_hand_out(dg_cuda *cu)
{
    size_t at = 0;
    for (int i = 0; i < cu->batch->n_segment; i++) {
        const dg_segment *s = &cu->batch->segment[i];
        const dg_asked *a = asked_of(s);
        answers from;
        if (!a)
            continue;
        at += place_answers(&from, (unsigned char *)cu->host_answers + at, a, s->n_row);
        hand_out(a, &from, (size_t)s->n_row);
    }
}
