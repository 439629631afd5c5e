#include "anthropic_count.h"
#include "anthropic_request.h"
#include "call_body.h"

static bool count(dg_call *c, size_t *n, dg_http_error *e)
{
    dg_chat chat;
    dgemma_error err = {0};
    if (!dg_call_chat(c, dg_anthropic_read_count, &chat, e))
        return false;
    dgemma_request_options o = chat.options;
    o.messages = chat.messages;
    dgemma_status st = dgemma_prompt_count(c->hold.model->engine, &o, n, &err);
    dg_chat_clear(&chat);
    return !st || dg_refuse_status(e, &err, "messages");
}

void dg_anthropic_count(dg_call *c)
{
    dg_http_error e;
    size_t n;
    if (count(c, &n, &e))
        dg_exchange_reply(&c->x, 200, json_pack("{s:I}", "input_tokens", (json_int_t)n));
    else
        dg_exchange_refuse(&c->x, &e);
}
