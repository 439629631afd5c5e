#include "engine/loader.h"
#include "base/alloc.h"
#include "engine/gguf_tokenizer.h"
#include "model/config_gguf.h"
#include "model/model.h"
#include "model/vision.h"

/* Documents beside the weights. The published tokenizer.json has 33 MB; what a tree of one takes is
 * bounded by its values (base/json_values.h). */
enum { CONFIG_MAX = 4 << 20, TOKENIZER_MAX = 64 << 20 };

/* Takes over what a document of the folder says; `where` is its path, for errors. */
typedef dgemma_status parse_fn(dg_loaded *l, const dg_buf *doc, const char *where,
                               dgemma_error *err);

static dgemma_status read_document(dg_loaded *l, const char *name, size_t max, parse_fn *parse,
                                   dgemma_error *err)
{
    char *path = dg_checkpoint_path(l->checkpoint, name, err);
    if (!path)
        return DGEMMA_E_NOMEM;
    dg_buf doc;
    dg_buf_init(&doc, max);
    dgemma_status st = dg_checkpoint_document(l->checkpoint, name, &doc, err);
    if (!st)
        st = parse(l, &doc, path, err);
    dg_buf_clear(&doc);
    dg_free(path);
    return st;
}

static dgemma_status read_if_there(dg_loaded *l, const char *name, size_t max, parse_fn *parse,
                                   dgemma_error *err)
{
    return dg_checkpoint_has_document(l->checkpoint, name) ? read_document(l, name, max, parse, err)
                                                           : DGEMMA_OK;
}

static dgemma_status parse_config(dg_loaded *l, const dg_buf *doc, const char *where,
                                  dgemma_error *err)
{
    return dg_config_parse(&l->cfg, doc->data, doc->len, where, err);
}

static dgemma_status parse_generation(dg_loaded *l, const dg_buf *doc, const char *where,
                                      dgemma_error *err)
{
    return dg_generation_config_parse(&l->generation, &l->cfg, doc->data, doc->len, where, err);
}

static dgemma_status read_config(dg_loaded *l, dgemma_error *err)
{
    if (dg_checkpoint_gguf(l->checkpoint))
        return dg_config_from_gguf(&l->cfg, &l->generation, l->checkpoint, err);
    l->generation = dg_generation_defaults();
    dgemma_status st = read_document(l, "config.json", CONFIG_MAX, parse_config, err);
    return st ? st : read_if_there(l, "generation_config.json", CONFIG_MAX, parse_generation, err);
}

/* It has no more words than the model. */
static dgemma_status check_tokenizer(const dg_loaded *l, const char *where, dgemma_error *err)
{
    const int n = l->tokenizer ? (int)dg_tokenizer_count(l->tokenizer) : 0;
    return n <= l->cfg.n_vocab ? DGEMMA_OK
                               : dg_fail(err, DGEMMA_E_FORMAT, "%s has %d tokens, the model %d",
                                         where, n, l->cfg.n_vocab);
}

static dgemma_status parse_tokenizer(dg_loaded *l, const dg_buf *doc, const char *where,
                                     dgemma_error *err)
{
    dgemma_status st = dg_tokenizer_from_json(&l->tokenizer, doc->data, doc->len, where, err);
    return st ? st : check_tokenizer(l, where, err);
}

static dgemma_status read_tokenizer(dg_loaded *l, dgemma_error *err)
{
    const dg_gguf *g = dg_checkpoint_gguf(l->checkpoint);
    if (!g)
        return read_if_there(l, "tokenizer.json", TOKENIZER_MAX, parse_tokenizer, err);
    const char *where = dg_checkpoint_dir(l->checkpoint);
    dgemma_status st = dg_gguf_tokenizer(&l->tokenizer, g, where, err);
    return st ? st : check_tokenizer(l, where, err);
}

/* The config of the tower in l->mmproj. */
static dgemma_status read_tower(dg_loaded *l, dgemma_error *err)
{
    if (!l->mmproj)
        return DGEMMA_OK;
    if (!dg_checkpoint_gguf(l->mmproj))
        return dg_fail(err, DGEMMA_E_ARG,
                       "%s: not a GGUF file; a vision tower of its own is given as one",
                       dg_checkpoint_dir(l->mmproj));
    return dg_config_from_mmproj(&l->cfg, l->mmproj, err);
}

/* Nobody asked for the file beside the model: what is wrong with it is no reason not to load the
 * model. */
static dgemma_status find_tower(dg_loaded *l, dgemma_error *err)
{
    const dg_vision_config own = l->cfg.vision;
    dgemma_error wrong = {0};
    dgemma_status st = dg_checkpoint_open_mmproj(&l->mmproj, l->checkpoint, &wrong);
    if (!st)
        st = read_tower(l, &wrong);
    if (!st)
        return DGEMMA_OK;
    dg_checkpoint_close(l->mmproj);
    l->mmproj = NULL;
    l->cfg.vision = own;
    l->tower_ignored = st == DGEMMA_E_NOMEM ? NULL : dg_strdup(wrong.msg);
    return l->tower_ignored ? DGEMMA_OK
                            : dg_fail(err, DGEMMA_E_NOMEM, "out of memory for the vision tower");
}

dgemma_status dg_load_tower(dg_loaded *l, const char *path, dgemma_error *err)
{
    dgemma_status st;
    if (path) {
        st = dg_checkpoint_open(&l->mmproj, path, err);
        if (!st)
            st = read_tower(l, err);
    } else {
        st = find_tower(l, err);
    }
    if (!st && !dg_vision_is_in(l->mmproj ? l->mmproj : l->checkpoint))
        l->cfg.vision.present = false;
    return st;
}

dgemma_status dg_load(dg_loaded *out, const char *path, dgemma_error *err)
{
    *out = (dg_loaded){0};
    dgemma_status st = dg_checkpoint_open(&out->checkpoint, path, err);
    if (!st)
        st = read_config(out, err);
    if (!st)
        st = read_tokenizer(out, err);
    if (!st)
        st = dg_checkpoint_chat_template(out->checkpoint, &out->chat_template, err);
    if (st)
        dg_loaded_clear(out);
    return st;
}

void dg_loaded_clear(dg_loaded *l)
{
    dg_free(l->chat_template);
    dg_free(l->tower_ignored);
    dg_tokenizer_free(l->tokenizer);
    dg_checkpoint_close(l->mmproj);
    dg_checkpoint_close(l->checkpoint);
    *l = (dg_loaded){0};
}

dgemma_status dg_loaded_check(const dg_loaded *l, dgemma_error *err)
{
    dgemma_status st = dg_model_check(&l->cfg, l->checkpoint, err);
    return st ? st : dg_vision_check(&l->cfg, l->mmproj ? l->mmproj : l->checkpoint, err);
}

bool dg_loaded_patch(dg_loaded *l, const void *address)
{
    return dg_checkpoint_patch(l->checkpoint, address) ||
           (l->mmproj && dg_checkpoint_patch(l->mmproj, address));
}

dgemma_status dg_loaded_intact(const dg_loaded *l, dgemma_error *err)
{
    dgemma_status st = dg_checkpoint_check(l->checkpoint, err);
    return st || !l->mmproj ? st : dg_checkpoint_check(l->mmproj, err);
}
