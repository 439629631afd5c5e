/* Any bytes as the body of a chat or text completion: it is refused with a status and a message, or
 * read into options that are in range. The first byte chooses the route. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/json_body.h"
#include "server/openai_request.h"
#include "support/chat_limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_chat(const dg_chat *c, bool chat)
{
    const dgemma_request_options *o = &c->options;
    require((c->messages != NULL) == chat && (c->n_prompt > 0) == !chat);
    require(c->n_choice >= 1 && c->n_choice <= dg_test_chat_limits.max_choices);
    require(o->max_tokens >= 1 && o->top_k >= 0 && o->temperature >= 0 && o->temperature <= 2);
    require(o->n_logprobs >= -1 && o->n_logprobs <= 20);
    require(!o->media && !o->n_media);
    for (size_t i = 0; i < o->n_stop; i++)
        require(o->stop[i] != NULL);
    for (size_t i = 0; i < o->n_logit_bias; i++)
        require(o->logit_bias[i].token >= 0 &&
                o->logit_bias[i].token < dg_test_chat_limits.n_vocab);
    for (size_t i = 0; i < c->n_prompt; i++)
        require(!c->prompts[i].text != !c->prompts[i].tokens);
    if (o->tool_choice == DGEMMA_TOOLS_NAMED)
        require(o->tool_name && strstr(o->tools, "name"));
}

static void check_refusal(const dg_http_error *e)
{
    require(e->status >= 400 && e->status < 600 && e->message[0]);
    json_t *object = dg_error_object(e);
    require(object != NULL);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    bool chat = data[0] != '!';
    const char *body = (const char *)data + !chat;
    dg_http_error e = {0};
    json_t *root = dg_json_body(body, size - (size_t)!chat, &e);
    dg_chat c;
    if (!root) {
        check_refusal(&e);
    } else if ((chat ? dg_openai_read_chat
                     : dg_openai_read_completion)(&c, root, &dg_test_chat_limits, 7, &e)) {
        check_chat(&c, chat);
        dg_chat_clear(&c);
    } else {
        check_refusal(&e);
    }
    return 0;
}
