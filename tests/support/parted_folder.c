#include "parted_folder.h"
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "format/modules.h"
#include "temp_dir.h"
#include "tiny_model.h"
#include "write_safetensors.h"

void folder_add(folder *f, const char *name, const char *suffix, dg_tensor t, void *data)
{
    ck_assert_uint_lt(f->n, FOLDER_TENSORS);
    snprintf(f->name[f->n], FOLDER_NAME, "%s%s", name, suffix);
    t.name = f->name[f->n];
    if (data)
        t.data = data;
    f->owned[f->n] = data != NULL;
    f->tensor[f->n++] = t;
}

void folder_write(folder *f, const char *dir, const dg_buf *config, const char *quantisation)
{
    char path[DG_TEST_PATH];
    dg_buf doc;
    dg_buf_init(&doc, 1 << 20);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert(config->data[0] == '{');
    dg_buf_puts(&doc, "{");
    dg_buf_puts(&doc, quantisation);
    dg_buf_append(&doc, config->data + 1, config->len - 1);
    ck_assert(dg_test_write_file(dir, "config.json", doc.data, doc.len));
    ck_assert(
        dg_test_write_safetensors(dg_test_path(path, dir, "model.safetensors"), f->tensor, f->n));
    for (size_t k = 0; k < f->n; k++)
        if (f->owned[k])
            dg_free((void *)(uintptr_t)f->tensor[k].data);
    dg_buf_clear(&doc);
}

void folder_check_logits(const char *parts, const char *plain, bool rounds)
{
    size_t n;
    float *got = tiny_logits(&(tiny_options){.folder = parts, .exact = true}, &n),
          *want = tiny_logits(&(tiny_options){.folder = plain, .exact = true}, &n),
          *integer = tiny_logits(&(tiny_options){.folder = parts}, &n);
    ck_assert_msg(memcmp(got, want, n * sizeof *got) == 0, "the logits differ");
    /* The fixture makes another answer of any rounding: there is no bound. */
    ck_assert(!rounds || memcmp(integer, want, n * sizeof *integer) != 0);
    for (size_t i = 0; i < n; i++)
        ck_assert(isfinite(integer[i]));
    dg_free(got);
    dg_free(want);
    dg_free(integer);
}

float *pieces_values(const dg_tensor *t)
{
    dgemma_error err = {0};
    const size_t n = dg_tensor_count(t);
    void *made = dg_malloc(t->bytes);
    float *out = dg_array(n, sizeof *out);
    ck_assert_msg(dg_pieces_make(made, t, 0, t->shape[t->n_dim - 2], &err) == DGEMMA_OK, "%s",
                  err.msg);
    dg_tensor whole = *t;
    whole.data = made;
    dg_tensor_widen(out, &whole, n);
    dg_free(made);
    return out;
}
