/* Any bytes as the body of a request in one of the other dialects: it is refused with a status and
 * a message, or read into a conversation with options that are in range. The first byte chooses the
 * route. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/anthropic_request.h"
#include "server/anthropic_response.h"
#include "server/json_body.h"
#include "server/ollama_request.h"
#include "server/ollama_response.h"
#include "server/responses_request.h"
#include "server/responses_response.h"
#include "support/chat_limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    char letter;
    dg_read_fn *read;
    const dg_dialect *dialect;
} routes[] = {
    {'r', dg_responses_read, &dg_responses},
    {'m', dg_anthropic_read, &dg_anthropic},
    {'t', dg_anthropic_read_count, &dg_anthropic},
    {'c', dg_ollama_read_chat, &dg_ollama_chat},
    {'g', dg_ollama_read_generate, &dg_ollama_generate},
};

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_chat(const dg_chat *c)
{
    const dgemma_request_options *o = &c->options;
    require((c->messages != NULL) == (c->n_prompt == 0));
    require(c->n_choice == 0 || c->n_choice == 1);
    require(o->max_tokens >= 1 && o->top_k >= 0 && o->temperature >= 0 && o->temperature <= 2);
    require(o->n_logprobs >= -1 && o->n_logprobs <= 20);
    require(!o->media && !o->n_media && json_is_object(json_object_get(c->root, "asked")));
    for (size_t i = 0; i < o->n_stop; i++)
        require(o->stop[i] != NULL);
    if (o->tool_choice == DGEMMA_TOOLS_NAMED)
        require(o->tool_name && strstr(o->tools, "name"));
    if (!c->messages)
        return;
    json_t *messages = json_loads(c->messages, 0, NULL);
    require(json_array_size(messages) > 0);
    json_decref(messages);
}

static void check_refusal(const dg_http_error *e, const dg_dialect *dialect)
{
    require(e->status >= 400 && e->status < 600 && e->message[0]);
    json_t *object = dialect->error(e);
    require(object != NULL);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t r = 0;
    while (size && r < sizeof routes / sizeof *routes && routes[r].letter != (char)data[0])
        r++;
    if (!size || r == sizeof routes / sizeof *routes)
        return 0;
    dg_http_error e = {0};
    dg_chat c;
    json_t *root = dg_json_body((const char *)data + 1, size - 1, &e);
    if (root && routes[r].read(&c, root, &dg_test_chat_limits, 7, &e)) {
        check_chat(&c);
        dg_chat_clear(&c);
    } else {
        check_refusal(&e, routes[r].dialect);
    }
    return 0;
}
