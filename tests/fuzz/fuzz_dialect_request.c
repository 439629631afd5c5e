/* Any bytes as the body of a request in one of the other dialects: it is refused with a status and
 * a message, or read into a conversation with options that are in range. The first byte chooses the
 * route. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/anthropic_request.h"
#include "server/anthropic_response.h"
#include "server/decisions.h"
#include "server/json_body.h"
#include "server/ollama_request.h"
#include "server/ollama_response.h"
#include "server/responses_request.h"
#include "server/responses_response.h"
#include "server/systemone.h"
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

typedef json_t *error_fn(const dg_http_error *e);

static void check_refusal(const dg_http_error *e, error_fn *error)
{
    require(e->status >= 400 && e->status < 600 && e->message[0]);
    json_t *object = error(e);
    require(object != NULL);
    json_decref(object);
}

/* Questions of a decision: refused, or such as the library takes. */
static void check_decision(const dg_decide_wire *wire, error_fn *error, const char *text,
                           size_t len)
{
    dg_http_error e = {0};
    dg_decide_body b = {.options = dgemma_decide_defaults(), .max_images = 4};
    b.root = dg_json_body(text, len, &e);
    if (!b.root || !wire->read(&b, &e)) {
        check_refusal(&e, error);
    } else {
        const dgemma_decide_options *o = &b.options;
        require(!o->state != !o->messages && o->n_questions && o->questions == b.questions);
        for (size_t i = 0; i < o->n_questions; i++) {
            const dgemma_question *q = &b.questions[i];
            require(q->text && q->n_options <= DGEMMA_MAX_OPTIONS);
            for (size_t k = 0; q->kind != DGEMMA_QUESTION_YES_NO && k < q->n_options; k++)
                require(q->options[k].name != NULL);
        }
    }
    dg_decide_body_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t r = 0;
    if (size && data[0] == 's')
        check_decision(&dg_systemone, dg_systemone_error, (const char *)data + 1, size - 1);
    if (size && data[0] == 'd')
        check_decision(&dg_decisions, dg_error_object, (const char *)data + 1, size - 1);
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
        check_refusal(&e, routes[r].dialect->error);
    }
    return 0;
}
