/* A GGUF file of arbitrary bytes: what is accepted lies inside the buffer, can be found by name,
 * and every value can be read as anything. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "engine/gguf_tokenizer.h"
#include "format/gguf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void check_tensor(const dg_gguf *g, const dg_tensor *t, const uint8_t *data, size_t size)
{
    const uint8_t *p = t->data;
    check(p >= data && p <= data + size && t->bytes <= (size_t)(data + size - p));
    check(t->n_dim >= 1 && t->n_dim <= DG_MAX_DIM);
    check(dg_dtype_bytes(t->type, dg_tensor_count(t)) == t->bytes);
    check(dg_gguf_tensor(g, t->name) == t);
}

static void read_value(const dg_gguf_value *v)
{
    int64_t whole;
    double real;
    bool yes;
    size_t n = 0;
    dg_gguf_text text;
    for (size_t i = 0; i <= v->n && i < 1000; i++) {
        dg_gguf_int(v, i, &whole);
        dg_gguf_float(v, i, &real);
        dg_gguf_bool(v, i, &yes);
    }
    dg_gguf_string(v, &text);
    for (dg_gguf_strings s = dg_gguf_strings_of(v); dg_gguf_strings_next(&s, &text);)
        n += text.len ? (unsigned char)text.text[text.len - 1] : 0;
    check(n < SIZE_MAX);
}

/* The names of the Hugging Face checkpoint, and the factors beside block types. */
static void name_tensors(dg_gguf *g)
{
    dg_gguf_file file = {.path = "fuzz", .content = *g};
    dg_gguf_model m = {.file = &file, .n_file = 1};
    dgemma_error err = {0};
    dgemma_status st = dg_gguf_model_name(&m, &err);
    check(st == DGEMMA_OK || err.msg[0]);
    for (size_t i = 0; i < m.n_tensor; i++) {
        const dg_tensor *t = &m.tensor[i];
        check(strlen(t->name) > 0);
        size_t n_mat = t->n_dim == 3 ? (size_t)t->shape[0] : 1;
        for (size_t k = 0; k < n_mat && t->scale; k++) {
            volatile float read = t->scale[k];
            (void)read;
        }
    }
    m.n_file = 0;
    m.file = NULL;
    dg_gguf_model_close(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dg_gguf g;
    dgemma_error err = {0};
    dgemma_status status = dg_gguf_parse(&g, data, size, "fuzz", &err);
    check(status == DGEMMA_OK || (err.status == status && err.msg[0] && !g.tensor && !g.value));
    if (status)
        return 0;
    for (size_t i = 0; i < g.n_value; i++)
        read_value(&g.value[i]);
    for (size_t i = 0; i < g.n_tensor; i++)
        check_tensor(&g, &g.tensor[i], data, size);
    name_tensors(&g);
    dg_tokenizer *t = NULL;
    status = dg_gguf_tokenizer(&t, &g, "fuzz", &err);
    check(status == DGEMMA_OK || !t);
    dg_tokenizer_free(t);
    dg_gguf_clear(&g);
    return 0;
}
