#include "openai_request.h"
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "canvas_request.h"
#include "constraint_request.h"
#include "json_fields.h"
#include "json_text.h"
#include "openai_tools.h"
#include "start_request.h"
#include "translate.h"

enum { MAX_STOP = 64, MAX_BIAS = 1024, MAX_PROMPTS = 1024 };

typedef struct reader {
    dg_chat *out;
    const json_t *root;
    const dg_chat_limits *limits;
    dg_http_error *e;
} reader;

void dg_chat_clear(dg_chat *c)
{
    for (size_t i = 0; i < c->n_prompt; i++) {
        dg_free(c->prompts[i].tokens);
        dg_free(c->prompts[i].before);
        dg_free(c->prompts[i].passage);
        dg_free(c->prompts[i].after);
    }
    dg_free(c->prompts);
    dg_free(c->canvas);
    dg_free(c->pinned);
    dg_free(c->messages);
    dg_free(c->tools);
    dg_free(c->prefix);
    dg_free(c->stop);
    dg_free(c->bias);
    dg_free(c->read_tokens);
    dg_free(c->read_ids);
    dg_free(c->stop_tokens);
    dg_free(c->read_pinned);
    dgemma_constraint_free(c->constraint);
    json_decref(c->root);
    *c = (dg_chat){0};
}

void dg_chat_forget_prompt(dg_chat *c)
{
    static const char *const names[] = {"messages", "prompt", "input", "images"};
    json_t *asked = json_object_get(c->root, "asked");
    dg_free(c->messages);
    c->messages = NULL;
    for (size_t i = 0; i < c->n_prompt; i++) { /* what is around a gap is not of the prompt alone */
        dg_raw_prompt *p = &c->prompts[i];
        dg_free(p->tokens);
        dg_free(p->before);
        p->text = NULL;
        p->tokens = NULL;
        p->before = NULL;
    }
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        json_object_del(c->root, names[i]);
        json_object_del(asked, names[i]);
    }
}

static bool no_memory(reader *r)
{
    dg_refuse(r->e, 503, "out_of_memory", NULL, "out of memory for the request");
    r->e->retry_after = 5;
    return false;
}

/* ---- numbers and switches ---- */

#define OPTION(field) offsetof(dg_chat, options.field)

static const dg_field common_fields[] = {
    {"n", DG_FIELD_INT, offsetof(dg_chat, n_choice), INT_MIN, INT_MAX}, /* check_choices */
    {"stream", DG_FIELD_BOOL, offsetof(dg_chat, stream), 0, 0},
    {"temperature", DG_FIELD_FLOAT, OPTION(temperature), 0, 2},
    {"top_p", DG_FIELD_FLOAT, OPTION(top_p), 0, 1},
    {"top_k", DG_FIELD_INT, OPTION(top_k), -1, INT_MAX},
    {"min_p", DG_FIELD_FLOAT, OPTION(min_p), 0, 1},
    {"max_tokens", DG_FIELD_INT, OPTION(max_tokens), 1, INT_MAX},
    {"max_completion_tokens", DG_FIELD_INT, OPTION(max_tokens), 1, INT_MAX}, /* wins */
};

/* Names that other servers gave to the same things come first, so that ours win. */
static const dg_field chat_fields[] = {
    {"thinking_token_budget", DG_FIELD_INT, OPTION(thinking_budget), -1, INT_MAX},
    {"reasoning_budget_tokens", DG_FIELD_INT, OPTION(thinking_budget), -1, INT_MAX},
    {"thinking_budget", DG_FIELD_INT, OPTION(thinking_budget), -1, INT_MAX},
    {"enable_thinking", DG_FIELD_BOOL, OPTION(thinking), 0, 0},
    {"image_tokens", DG_FIELD_INT, OPTION(image_tokens), 1, 1120},
};

static const dg_field diffusion_fields[] = {
    {"max_denoising_steps", DG_FIELD_INT, OPTION(max_denoise_steps), 1, 100000},
    {"steps", DG_FIELD_INT, OPTION(max_denoise_steps), 1, 100000},
    {"t_min", DG_FIELD_FLOAT, OPTION(t_min), 1e-3, 100},
    {"t_max", DG_FIELD_FLOAT, OPTION(t_max), 1e-3, 100},
    {"entropy_bound", DG_FIELD_FLOAT, OPTION(entropy_bound), 0, 1e6},
    {"stability_threshold", DG_FIELD_INT, OPTION(stability_threshold), 0, 100000},
    {"confidence_threshold", DG_FIELD_FLOAT, OPTION(confidence_threshold), 0, 1e6},
    {"canvas_length", DG_FIELD_INT, OPTION(canvas_length), 1, INT_MAX},
    {"settled_steps", DG_FIELD_INT, OPTION(settled_steps), 0, 100000},
    {"drafts", DG_FIELD_BOOL, OPTION(drafts), 0, 0},
    {"ids", DG_FIELD_BOOL, offsetof(dg_chat, draft_ids), 0, 0},
};

static bool read_fields(reader *r, const json_t *object, const char *where, const dg_field *fields,
                        size_t n)
{
    return dg_fields_read(r->out, object, where, fields, n, r->e);
}

static const char *const length_fields[] = {"max_tokens", "max_completion_tokens"};

/* -1 is how other servers' clients say "as many as there may be". */
static void forget_unbounded(reader *r)
{
    for (size_t i = 0; i < DG_COUNT(length_fields); i++) {
        const json_t *n = json_object_get(r->root, length_fields[i]);
        if (json_is_integer(n) && json_integer_value(n) == -1)
            json_object_del(r->out->root, length_fields[i]);
    }
}

static bool read_seed(reader *r)
{
    const json_t *seed = dg_field_get(r->root, "seed");
    if (!seed)
        return true;
    if (!json_is_integer(seed))
        return dg_refuse(r->e, 400, "invalid_type", "seed",
                         "seed: wanted a whole number, up to 18446744073709551615");
    r->out->options.seed = (uint64_t)json_integer_value(seed);
    return true;
}

static bool read_stop(reader *r)
{
    const json_t *stop = dg_field_get(r->root, "stop");
    if (!stop)
        return true;
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (n > MAX_STOP)
        return dg_refuse(r->e, 400, "invalid_value", "stop", "stop: %zu strings, at most %d", n,
                         MAX_STOP);
    r->out->stop = dg_calloc(n + 1, sizeof *r->out->stop);
    if (!r->out->stop)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(text))
            return dg_refuse(r->e, 400, "invalid_type", "stop", "stop: wanted text or a list of");
        r->out->stop[i] = json_string_value(text);
    }
    r->out->options.stop = r->out->stop;
    r->out->options.n_stop = n;
    return true;
}

/* {"token id": bias} */
static bool read_bias(reader *r)
{
    json_t *bias, *value;
    const char *key;
    if (!dg_field_object(r->root, "logit_bias", &bias, r->e))
        return false;
    size_t n = json_object_size(bias);
    if (!n)
        return true;
    if (n > MAX_BIAS)
        return dg_refuse(r->e, 400, "invalid_value", "logit_bias",
                         "logit_bias: %zu tokens, at most %d", n, MAX_BIAS);
    r->out->bias = dg_calloc(n, sizeof *r->out->bias);
    if (!r->out->bias)
        return no_memory(r);
    n = 0;
    json_object_foreach(bias, key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        bool plain = isdigit((unsigned char)key[0]) && !(key[0] == '0' && key[1]);
        if (!plain || *end || id >= r->limits->n_vocab) /* nor the same id in two ways */
            return dg_refuse(r->e, 400, "invalid_value", "logit_bias",
                             "logit_bias: \"%.40s\" is no token id below %d", key,
                             r->limits->n_vocab);
        double x = json_number_value(value);
        if (!json_is_number(value) || !(x >= -100 && x <= 100))
            return dg_refuse(r->e, 400, "invalid_value", "logit_bias",
                             "logit_bias: wanted a number from -100 to 100 for token %ld", id);
        r->out->bias[n++] = (dgemma_logit_bias){(int32_t)id, (float)x};
    }
    r->out->options.logit_bias = r->out->bias;
    r->out->options.n_logit_bias = n;
    return true;
}

/* Why nobody gets them, and what to ask instead. */
static const char no_prompt_logprobs[] =
    "tokens of a prompt have no log-probabilities: the model predicts the words of a canvas, never "
    "the next word of a prompt. POST /v1/decisions weighs given answers";

/* What both routes have in common. */
static bool read_common(reader *r)
{
    const json_t *of_prompt = dg_field_get(r->root, "prompt_logprobs");
    if (of_prompt && !json_is_false(of_prompt))
        return dg_refuse(r->e, 400, "unsupported", "prompt_logprobs", "prompt_logprobs: %s",
                         no_prompt_logprobs);
    if (json_is_true(json_object_get(r->root, "echo")))
        return dg_refuse(r->e, 400, "unsupported", "echo", "echo: the prompt is not given back; %s",
                         no_prompt_logprobs);
    static const dg_field stream_fields[] = {
        {"include_usage", DG_FIELD_BOOL, offsetof(dg_chat, include_usage), 0, 0},
    };
    dg_chat *c = r->out;
    json_t *stream, *diffusion;
    const char *model;
    c->n_choice = 1;
    forget_unbounded(r);
    bool ok =
        dg_field_string(r->root, "model", &model, r->e) &&
        read_fields(r, r->root, "", common_fields, DG_COUNT(common_fields)) &&
        dg_field_object(r->root, "stream_options", &stream, r->e) &&
        read_fields(r, stream, "stream_options.", stream_fields, DG_COUNT(stream_fields)) &&
        dg_field_object(r->root, "diffusion", &diffusion, r->e) &&
        dg_canvas_read(c, diffusion, r->limits->n_vocab, r->e) &&
        dg_fields_known(diffusion, "diffusion.", diffusion_fields, DG_COUNT(diffusion_fields),
                        r->e) &&
        read_fields(r, diffusion, "diffusion.", diffusion_fields, DG_COUNT(diffusion_fields)) &&
        read_seed(r) && read_stop(r) && read_bias(r) && dg_openai_read_canvas(c, r->limits, r->e);
    if (c->options.top_k < 0)
        c->options.top_k = 0; /* what some clients send for "all" */
    c->options.drafts = c->options.drafts && c->stream;
    return ok;
}

static bool check_choices(reader *r, size_t n_prompt)
{
    int n = r->out->n_choice, max = r->limits->max_choices;
    if (n_prompt > 1 && n >= 1 && (size_t)n > (size_t)max / n_prompt)
        return dg_refuse(r->e, 400, "invalid_value", "n",
                         "n is %d for %zu prompts: %d answers are possible in one request", n,
                         n_prompt, max);
    if (n < 1 || n > max)
        return dg_refuse(r->e, 400, "invalid_value", "n", "n is %d: 1 to %d are possible", n, max);
    return true;
}

/* ---- conversations ---- */

static bool is_medium(const json_t *part)
{
    static const char *const names[] = {"image",     "image_url",   "input_image", "video",
                                        "video_url", "input_video", "audio"};
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type && i < DG_COUNT(names); i++)
        if (!strcmp(type, names[i]))
            return true;
    return false;
}

static bool check_messages(reader *r, const json_t *messages)
{
    size_t i, k;
    json_t *message, *part;
    int n_medium = 0;
    if (!json_array_size(messages))
        return dg_refuse(r->e, 400, "invalid_value", "messages",
                         "messages: wanted a list with something in it");
    json_array_foreach(messages, i, message)
    {
        if (!json_is_object(message))
            return dg_refuse(r->e, 400, "invalid_type", "messages", "messages[%zu]: no object", i);
        json_array_foreach(json_object_get(message, "content"), k, part) n_medium +=
            is_medium(part);
    }
    if (n_medium > r->limits->max_images)
        return dg_refuse(r->e, 400, "too_many_images", "messages",
                         "messages: %d pictures and videos, at most %d in a request", n_medium,
                         r->limits->max_images);
    return true;
}

static const char *role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

/* The answer goes on from where the last message ends. */
static bool take_prefix(reader *r, json_t *messages)
{
    const json_t *go_on = dg_field_get(r->root, "continue_final_message");
    if (go_on && !json_is_boolean(go_on))
        return dg_refuse(r->e, 400, "invalid_type", "continue_final_message",
                         "continue_final_message: wanted true or false");
    if (!json_is_true(go_on))
        return true;
    size_t last = json_array_size(messages) - 1;
    const json_t *message = json_array_get(messages, last);
    const char *text = json_string_value(json_object_get(message, "content"));
    if (strcmp(role_of(message), "assistant") != 0 || !text || !last)
        return dg_refuse(r->e, 400, "invalid_value", "continue_final_message",
                         "continue_final_message: the last message must be text of an assistant");
    r->out->prefix = dg_strdup(text);
    r->out->options.answer_prefix = r->out->prefix;
    return (r->out->prefix && !json_array_remove(messages, last)) || no_memory(r);
}

/* Tells the model what its answer has to look like, where it looks for instructions. */
static bool add_wish(reader *r, json_t *messages)
{
    bool ok;
    char *wish = dg_constraint_wish(r->out, &ok);
    if (!wish)
        return ok || no_memory(r);
    json_t *first = json_array_get(messages, 0);
    json_t *content = json_object_get(first, "content");
    bool system = !strcmp(role_of(first), "system") || !strcmp(role_of(first), "developer");
    int failed;
    if (system && json_is_string(content))
        failed = json_object_set_new(first, "content",
                                     json_sprintf("%s\n\n%s", json_string_value(content), wish));
    else if (system && json_is_array(content))
        failed = json_array_append_new(
            content, json_pack("{s:s,s:s+}", "type", "text", "text", "\n\n", wish));
    else
        failed = json_array_insert_new(messages, 0,
                                       json_pack("{s:s,s:s}", "role", "system", "content", wish));
    dg_free(wish);
    return !failed || no_memory(r);
}

static bool read_constraint(reader *r)
{
    if (!dg_constraint_read(r->out, r->limits, r->e))
        return false;
    r->out->options.constraint = r->out->constraint;
    return !r->out->constraint || !r->out->prefix ||
           dg_refuse(r->e, 400, "unsupported", "continue_final_message",
                     "continue_final_message: not where the answer is held to something");
}

static bool read_messages(reader *r)
{
    json_t *messages;
    if (!dg_field_list(r->root, "messages", &messages, r->e) || !check_messages(r, messages) ||
        !take_prefix(r, messages) || !read_constraint(r) || !add_wish(r, messages))
        return false;
    json_t *kwargs = dg_field_get(r->root, "chat_template_kwargs");
    bool keep = json_is_true(json_object_get(kwargs, "preserve_thinking"));
    /* an object can say more than the list */
    json_t *conversation =
        keep ? json_pack("{s:O,s:b}", "messages", messages, "preserve_thinking", 1)
             : json_incref(messages);
    r->out->messages = dg_json_dump(conversation, NULL);
    json_decref(conversation);
    return r->out->messages || no_memory(r);
}

/* ---- thinking ---- */

static bool read_thinking(reader *r)
{
    static const dg_field kwargs_fields[] = {
        {"enable_thinking", DG_FIELD_BOOL, OPTION(thinking), 0, 0},
    };
    static const char *const off[] = {"none", "minimal"};
    const char *effort;
    json_t *kwargs;
    if (!dg_field_string(r->root, "reasoning_effort", &effort, r->e) ||
        !dg_field_object(r->root, "chat_template_kwargs", &kwargs, r->e))
        return false;
    if (effort && !dg_is_effort(effort))
        return dg_refuse(r->e, 400, "invalid_value", "reasoning_effort",
                         "reasoning_effort: " DG_EFFORTS " are known");
    if (effort)
        r->out->options.thinking = strcmp(effort, off[0]) != 0 && strcmp(effort, off[1]) != 0;
    static const dg_field include = {"include_reasoning", DG_FIELD_BOOL, 0, 0, 0};
    bool shown = true;
    if (!dg_fields_read(&shown, r->root, "", &include, 1, r->e))
        return false;
    r->out->hide_thinking = !shown;
    return read_fields(r, kwargs, "chat_template_kwargs.", kwargs_fields,
                       DG_COUNT(kwargs_fields)) &&
           read_fields(r, r->root, "", chat_fields, DG_COUNT(chat_fields));
}

/* ---- the rest ---- */

static bool read_logprobs(reader *r)
{
    const json_t *on = dg_field_get(r->root, "logprobs");
    const json_t *top = dg_field_get(r->root, "top_logprobs");
    json_int_t n = json_integer_value(top);
    if (on && !json_is_boolean(on))
        return dg_refuse(r->e, 400, "invalid_type", "logprobs", "logprobs: wanted true or false");
    if (top && (!json_is_integer(top) || n < 0 || n > 20))
        return dg_refuse(r->e, 400, "invalid_value", "top_logprobs",
                         "top_logprobs: 0 to 20 are possible");
    if (n && !json_is_true(on))
        return dg_refuse(r->e, 400, "invalid_value", "top_logprobs",
                         "top_logprobs goes with logprobs: true");
    r->out->logprobs = json_is_true(on);
    r->out->options.n_logprobs = r->out->logprobs ? (int)n : -1;
    return true;
}

static bool finish(bool ok, dg_chat *out)
{
    if (!ok)
        dg_chat_clear(out);
    return ok;
}

static reader begin(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                    dg_http_error *e)
{
    *out = (dg_chat){.root = root, .options = limits->defaults};
    out->options.seed = seed;
    return (reader){out, root, limits, e};
}

bool dg_openai_read_chat(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                         dg_http_error *e)
{
    reader r = begin(out, root, limits, seed, e);
    return finish(dg_openai_read_functions(out, e) && read_common(&r) && check_choices(&r, 1) &&
                      read_thinking(&r) && dg_openai_read_tools(out, e) && read_logprobs(&r) &&
                      dg_openai_check_canvas(out, e) && read_messages(&r),
                  out);
}

/* ---- completions ---- */

static bool add_prompt(reader *r, const json_t *v)
{
    dg_raw_prompt *p = &r->out->prompts[r->out->n_prompt];
    p->text = json_string_value(v);
    if (!p->text && !json_is_array(v))
        return dg_refuse(r->e, 400, "invalid_type", "prompt",
                         "prompt: wanted text, token ids, or a list of them");
    if (!p->text && !dg_field_ids(v, r->limits->n_vocab, "prompt", &p->tokens, &p->n_token, r->e))
        return false;
    r->out->n_prompt++;
    return true;
}

/* Text, token ids, or a list of either. */
static bool read_prompts(reader *r)
{
    const json_t *v = dg_field_get(r->root, "prompt");
    bool many = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = many ? json_array_size(v) : 1;
    if (n < 1 || n > MAX_PROMPTS)
        return dg_refuse(r->e, 400, "invalid_value", "prompt", "prompt: %zu of them, 1 to %d", n,
                         MAX_PROMPTS);
    r->out->prompts = dg_calloc(n, sizeof *r->out->prompts);
    if (!r->out->prompts)
        return no_memory(r);
    for (size_t i = 0; i < n; i++)
        if (!add_prompt(r, many ? json_array_get(v, i) : v))
            return false;
    return check_choices(r, n);
}

/* With a suffix prompts are what stands before a gap. `fill`: though it be empty. */
static bool read_suffix(reader *r)
{
    const char *suffix;
    if (!dg_field_string(r->root, "suffix", &suffix, r->e))
        return false;
    if (!suffix || !(*suffix || json_is_true(json_object_get(r->root, "fill"))))
        return true;
    for (size_t i = 0; i < r->out->n_prompt; i++) {
        dg_raw_prompt *p = &r->out->prompts[i];
        if (!p->text)
            return dg_refuse(r->e, 400, "invalid_type", "prompt",
                             "prompt: wanted text, with a suffix");
        if (!dg_canvas_gap(p, p->text, NULL, suffix, r->e))
            return false;
    }
    return true;
}

static bool read_old_logprobs(reader *r)
{
    const json_t *v = dg_field_get(r->root, "logprobs");
    if (v && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 20))
        return dg_refuse(r->e, 400, "invalid_value", "logprobs", "logprobs: 0 to 20 are possible");
    r->out->logprobs = v != NULL;
    r->out->options.n_logprobs = v ? (int)json_integer_value(v) : -1;
    return true;
}

/* Text without turns need not end. Unless it is told how far to go on, a block of it is enough: a
 * shorter piece would cost as much. */
static void bound_length(reader *r)
{
    dgemma_request_options *o = &r->out->options;
    bool said = false;
    for (size_t i = 0; i < DG_COUNT(length_fields); i++)
        said = said || dg_field_get(r->root, length_fields[i]);
    if (!said)
        o->max_tokens = dg_min(o->max_tokens, o->canvas_length);
}

bool dg_openai_read_completion(dg_chat *out, json_t *root, const dg_chat_limits *limits,
                               uint64_t seed, dg_http_error *e)
{
    reader r = begin(out, root, limits, seed, e);
    bound_length(&r);
    return finish(read_common(&r) && read_prompts(&r) && read_suffix(&r) && read_old_logprobs(&r) &&
                      dg_openai_check_canvas(out, e) && read_constraint(&r),
                  out);
}
