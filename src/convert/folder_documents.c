#include "convert/folder_documents.h"
#include "model/config_json_put.h"
#include "text/tokenizer_json_put.h"

static dg_buf *add(dg_folder_documents *d, const char *name)
{
    dg_folder_document *to = &d->at[d->n++];
    to->name = name;
    dg_buf_init(&to->text, DG_FOLDER_DOCUMENT_MAX);
    return &to->text;
}

dgemma_status dg_folder_documents_make(dg_folder_documents *d, const dg_loaded *l,
                                       dgemma_error *err)
{
    const dg_config *cfg = &l->cfg;
    if (!l->tokenizer)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "the file has no tokenizer, of which tokenizer.json is made");
    dgemma_status st = dg_config_json(add(d, "config.json"), cfg, err);
    if (!st)
        st = dg_generation_config_json(add(d, "generation_config.json"), cfg, &l->generation, err);
    if (!st)
        st = dg_tokenizer_json(add(d, "tokenizer.json"), l->tokenizer, err);
    if (!st)
        st = dg_tokenizer_config_json(add(d, "tokenizer_config.json"), l->tokenizer, err);
    if (!st && l->chat_template && !dg_buf_puts(add(d, "chat_template.jinja"), l->chat_template))
        st = dg_fail(err, DGEMMA_E_NOMEM, "chat_template.jinja: out of memory");
    return st;
}

void dg_folder_documents_clear(dg_folder_documents *d)
{
    for (int i = 0; i < d->n; i++)
        dg_buf_clear(&d->at[i].text);
    d->n = 0;
}
