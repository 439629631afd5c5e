#include "text/chat_template.h"
#include <string.h>
#include "base/common.h"

static const char *const markers[] = {"<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"};

bool dg_chat_supported(const dg_tokenizer *t)
{
    for (size_t i = 0; i < DG_COUNT(markers); i++)
        if (dg_tokenizer_added_id(t, markers[i]) < 0)
            return false;
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

dgemma_status dg_chat_user_turn(const dg_tokenizer *t, const char *text, size_t len, dg_tokens *out,
                                dgemma_error *err)
{
    if (!dg_chat_supported(t))
        return dg_fail(
            err, DGEMMA_E_UNSUPPORTED,
            "the model's tokenizer lacks the turn markers: only raw prompts are possible");
    static const char open[] = "<bos><|turn>user\n";
    static const char close[] = "<turn|>\n<|turn>model\n<|channel>thought\n<channel|>";
    while (len && is_space(*text))
        text++, len--;
    while (len && is_space(text[len - 1]))
        len--;
    size_t before = out->n;
    dgemma_status st = dg_tokenizer_encode(t, open, sizeof open - 1, DG_ENCODE_ADDED, out, err);
    if (!st)
        st = dg_tokenizer_encode(t, text, len, 0, out, err);
    if (!st)
        st = dg_tokenizer_encode(t, close, sizeof close - 1, DG_ENCODE_ADDED, out, err);
    if (st)
        out->n = before;
    return st;
}
