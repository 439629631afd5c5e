/* Any JSON as a conversation, in both templates: what is rendered is marked up consistently, and
 * its tokens are the marks and text alone. The first byte decides what is on: a bit for thinking,
 * one for keeping it, one for the generation prompt. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "support/byte_tokenizer.h"
#include "text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static const char *const markers[] = {
    "<bos>",     "<|turn>", "<turn|>",          "<|channel>",   "<channel|>",
    "<|tool>",   "<tool|>", "<|tool_call>",     "<tool_call|>", "<|tool_response>",
    "<|think|>", "<|\"|>",  "<tool_response|>", "<|image|>",    "<|audio|>",
    "<|video|>",
};

enum { MAX_TOKENS = 1 << 22 };

static bool is_marker(const char *text, size_t len)
{
    for (size_t i = 0; i < DG_COUNT(markers); i++)
        if (strlen(markers[i]) == len && memcmp(markers[i], text, len) == 0)
            return true;
    return false;
}

static void check_marks(const dg_prompt *p, const dg_conversation *c)
{
    size_t at = 0;
    for (size_t i = 0; i < p->n_mark; i++) {
        dg_prompt_mark m = p->marks[i];
        require(m.start >= at && m.start <= p->text.len && m.len <= p->text.len - m.start);
        require(is_marker(p->text.data + m.start, m.len));
        at = m.start + m.len;
    }
    for (size_t i = 0; i < p->n_slot; i++) {
        const dg_prompt_slot *s = &p->slots[i];
        require(s->mark < p->n_mark && s->message < c->n_message);
        const dg_content *content = &c->messages[s->message].content;
        require(s->part < content->n_part && content->parts[s->part].kind == s->kind);
    }
}

static void check_tokens(const dg_tokenizer *t, dg_prompt *p)
{
    dg_tokens tokens;
    dg_buf back;
    dg_tokens_init(&tokens, MAX_TOKENS);
    dg_buf_init(&back, MAX_TOKENS);
    if (dg_prompt_encode(t, p, &tokens, NULL) == DGEMMA_OK) {
        size_t n_special = 0;
        for (size_t i = 0; i < tokens.n; i++)
            n_special += dg_tokenizer_is_special(t, tokens.ids[i]);
        require(n_special == p->n_mark);
        for (size_t i = 0; i < p->n_slot; i++)
            require(p->slots[i].token < tokens.n);
        require(dg_tokenizer_decode(t, tokens.ids, tokens.n, true, &back, NULL) == DGEMMA_OK);
        require(back.len == p->text.len && memcmp(back.data, p->text.data, back.len) == 0);
    }
    dg_tokens_clear(&tokens);
    dg_buf_clear(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dg_tokenizer *t;
    t = t ? t : dg_test_byte_tokenizer(markers, DG_COUNT(markers), true);
    dg_conversation *c;
    dgemma_error err = {0};
    if (!size)
        return 0;
    dgemma_status st = dg_conversation_from_json(&c, (const char *)data + 1, size - 1, &err);
    require(st == DGEMMA_OK ? c != NULL : !c && err.msg[0]);
    if (st)
        return 0;
    c->thinking = c->thinking || data[0] & 1;
    c->preserve_thinking = c->preserve_thinking || data[0] & 2;
    c->add_generation_prompt = c->add_generation_prompt && !(data[0] & 4);
    for (int revision = DG_CHAT_REVISION_A; revision <= DG_CHAT_REVISION_B; revision++) {
        dg_prompt p;
        dg_prompt_init(&p);
        st = dg_chat_render(c, (dg_chat_revision)revision, &p, &err);
        require(st == DGEMMA_OK || err.msg[0]);
        check_marks(&p, c);
        if (!st)
            check_tokens(t, &p);
        dg_prompt_clear(&p);
    }
    dg_conversation_free(c);
    return 0;
}
