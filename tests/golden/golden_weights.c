/* What narrower weights cost: a fixture's own, rounded on their way to the backend as a file of
 * quantised weights, or a device that makes them narrower, would have them. */
#include <string.h>
#include "base/alloc.h"
#include "fixture.h"
#include "support/rounded.h"

typedef dgemma_status weight_init_fn(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                     dgemma_error *err);

/* A copy that the backend may point to until it is closed. */
typedef struct rounded_weight {
    struct rounded_weight *next;
    float value[];
} rounded_weight;

static struct {
    weight_init_fn *init;
    const char *form;
    rounded_weight *all;
} rounding;

static bool is_expert(dg_weight_role role)
{
    return role == DG_ROLE_EXPERT_GATE || role == DG_ROLE_EXPERT_UP || role == DG_ROLE_EXPERT_DOWN;
}

/* As the published files have them (model/synthetic_types.c): of down some layers are Q5_0, others
 * Q8_0. */
static rounding_fn *of_q4_k_m(const dg_weight_source *from)
{
    switch (from->role) {
    case DG_ROLE_EMBED:
    case DG_ROLE_VALUE:
        return round_to_q6_k;
    case DG_ROLE_DOWN:
    case DG_ROLE_EXPERT_DOWN:
        return from->layer % 2 ? round_to_q8_0 : round_to_q5_0;
    case DG_ROLE_ROUTER:
    case DG_ROLE_VISION:
        return NULL;
    default:
        return round_to_q4_k;
    }
}

/* As CUDA devices make them (cuda/cuda_weights.c). */
static rounding_fn *of_device(const dg_weight_source *from)
{
    if (is_expert(from->role))
        return strcmp(rounding.form, "int4") == 0 ? round_to_int4 : round_to_fp8;
    bool dense = from->role >= DG_ROLE_QUERY && from->role <= DG_ROLE_UP;
    return dense && from->layer >= 0 ? round_to_fp8 : NULL;
}

static rounding_fn *rounding_of(const dg_weight_source *from)
{
    if (strcmp(rounding.form, "Q4_K_M") == 0)
        return of_q4_k_m(from);
    if (strcmp(rounding.form, "Q8_0") == 0)
        return from->role == DG_ROLE_ROUTER || from->role == DG_ROLE_VISION ? NULL : round_to_q8_0;
    return of_device(from);
}

static dgemma_status rounded_init(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                  dgemma_error *err)
{
    const dg_tensor *t = from->tensor;
    rounding_fn *round = rounding_of(from);
    size_t n = dg_tensor_count(t), n_in = (size_t)t->shape[t->n_dim - 1];
    if (!round || dg_dtype_is_block(t->type))
        return rounding.init(be, w, from, err);
    rounded_weight *copy = dg_calloc(1, sizeof *copy + n * sizeof *copy->value);
    if (!copy)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    *copy = (rounded_weight){.next = rounding.all};
    rounding.all = copy;
    dg_widen(copy->value, t->data, t->type, n);
    size_t n_mat = t->n_dim == 3 ? (size_t)t->shape[0] : 1, each = n / n_mat;
    for (size_t m = 0; m < n_mat; m++)
        round(copy->value + m * each + (size_t)from->first_row * n_in, (size_t)from->n_row * n_in);
    dg_tensor rounded = *t;
    dg_weight_source with = *from;
    rounded.type = DG_F32;
    rounded.data = copy->value;
    rounded.bytes = n * sizeof *copy->value;
    with.tensor = &rounded;
    return rounding.init(be, w, &with, err);
}

dgemma_status golden_round_weights(dg_backend *be, const char *form, dgemma_error *err)
{
    static const char *const known[] = {"fp8", "int4", "Q4_K_M", "Q8_0"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(form, known[i]) == 0) {
            rounding.form = form;
            rounding.init = be->weight_init;
            be->weight_init = rounded_init;
            return DGEMMA_OK;
        }
    return dg_fail(err, DGEMMA_E_ARG, "weights are rounded to fp8, int4, Q4_K_M or Q8_0, not %s",
                   form);
}

void golden_rounded_free(void)
{
    for (rounded_weight *next; rounding.all; rounding.all = next) {
        next = rounding.all->next;
        dg_free(rounding.all);
    }
}
