/* POST /infill: llama-server's body as that of a completion with a suffix. */
#include <limits.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "constraint_request.h"
#include "start_request.h"
#include "json_fields.h"
#include "openai_request.h"
#include "translate.h"

enum { MAX_TEXT = 256 << 20 }; /* bodies are far smaller */

/* Other files, for the model to know of, as a system message. */
static bool read_extra(dg_translation *t)
{
    json_t *extra, *file;
    size_t i;
    dg_buf text;
    dg_buf_init(&text, MAX_TEXT);
    bool ok = dg_field_list(t->root, "input_extra", &extra, t->e), fits = true;
    json_array_foreach(extra, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "filename"));
        const char *said = json_string_value(json_object_get(file, "text"));
        ok = ok && (said || dg_refuse(t->e, 400, "invalid_value", "input_extra",
                                      "input_extra[%zu]: wanted {\"filename\", \"text\"}", i));
        fits = fits && ok && dg_buf_puts(&text, name ? name : "") &&
               dg_buf_puts(&text, name ? ":\n" : "") && dg_buf_puts(&text, said) &&
               dg_buf_puts(&text, "\n\n");
    }
    if (ok && text.len)
        dg_translate_set(t, "system", fits ? json_stringn(text.data, text.len) : NULL);
    dg_buf_clear(&text);
    return ok;
}

/* -1 is "as many as there may be" of tokens, and any seed. */
static void copy_number(dg_translation *t, const char *name, const char *as)
{
    if (json_integer_value(dg_field_get(t->root, name)) == -1)
        json_object_del(t->chat, as);
    else
        dg_translate_copy(t, name, as);
}

/* A number that is wrong is refused under the name that the client knows. */
static bool read_most(dg_translation *t)
{
    int most = 1;
    static const dg_field field = {"n_predict", DG_FIELD_INT, 0, 1, INT_MAX};
    bool unbounded = json_integer_value(dg_field_get(t->root, field.name)) == -1;
    if (!unbounded && !dg_fields_read(&most, t->root, "", &field, 1, t->e))
        return false;
    copy_number(t, field.name, "max_tokens");
    return true;
}

bool dg_infill_read(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                    dg_http_error *e)
{
    dg_translation t;
    const char *before, *after, *begun;
    dg_translate_begin(&t, root, limits, seed, e);
    bool ok = dg_field_string(root, "input_prefix", &before, e) &&
              dg_field_string(root, "input_suffix", &after, e) &&
              dg_field_string(root, "prompt", &begun, e) && dg_constraint_absent(root, e) &&
              read_extra(&t) && dg_translate_stop(&t, root, "stop") && read_most(&t);
    if (ok && !before && !after)
        ok = dg_refuse(e, 400, "missing_field", "input_prefix",
                       "wanted input_prefix and input_suffix: what stands around the gap");
    if (ok) {
        dg_translate_set(&t, "prompt",
                         json_sprintf("%s%s", before ? before : "", begun ? begun : ""));
        dg_translate_set(&t, "suffix", json_string(after ? after : ""));
        dg_translate_set(&t, "fill", json_true());
        copy_number(&t, "seed", "seed");
    }
    ok = dg_translate_end(&t, ok, dg_openai_read_completion, out);
    if (ok)
        out->options.system = json_string_value(json_object_get(out->root, "system"));
    return ok;
}
