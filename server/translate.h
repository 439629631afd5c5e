/* From another dialect's body to the one that openai_request.c reads: what the readers of the other
 * dialects share. They check what their fields have of their own, so that errors name what the
 * client wrote. Pure functions of JSON. */
#ifndef DG_SERVER_TRANSLATE_H
#define DG_SERVER_TRANSLATE_H

#include "chat_request.h"

typedef struct dg_translation {
    json_t *root;     /* owned: as the client wrote it */
    json_t *chat;     /* owned: the body of a chat completion, as far as it has come */
    json_t *messages; /* borrowed from chat */
    bool no_memory;   /* something is missing from chat */
    const dg_chat_limits *limits;
    uint64_t seed;
    dg_http_error *e;
} dg_translation;

/* Takes the root. Fields that mean the same everywhere are there already. */
void dg_translate_begin(dg_translation *t, json_t *root, const dg_chat_limits *limits,
                        uint64_t seed, dg_http_error *e);

/* Hands what was written to `read`, one of OpenAI's readers; `ok` is whether everything was right
 * so far. The client's own body is kept as `asked` in the chat's root. Call it in any case: it
 * frees the translation. */
bool dg_translate_end(dg_translation *t, bool ok, dg_read_fn *read, dg_chat *out);

/* Adds to a list, adds a message, sets a field of the body or of an object; they take the value,
 * and NULL counts as memory that is out. */
void dg_translate_add(dg_translation *t, json_t *list, json_t *value);
void dg_translate_say(dg_translation *t, json_t *message);
void dg_translate_set(dg_translation *t, const char *name, json_t *value);
void dg_translate_set_in(dg_translation *t, json_t *object, const char *name, json_t *value);

/* The client's field under another name, if it is there. */
void dg_translate_copy(dg_translation *t, const char *name, const char *as);

/* A list of stop strings, checked, under the client's name for it. */
bool dg_translate_stop(dg_translation *t, const json_t *object, const char *name);

/* {"type": "function", "function": {name, description, parameters}}, from a tool that is flat;
 * `parameters` is the client's name for the schema. NULL: memory is out. */
json_t *dg_translate_tool(const json_t *tool, const char *parameters);

/* A schema that answers are held to: the response_format of it. `strict` is the client's own, or
 * NULL; `at` is the schema's JSON pointer in the client's body. */
void dg_translate_schema(dg_translation *t, json_t *schema, json_t *strict, const char *at);

/* {"type": "image_url", …} of base64 text. NULL: memory is out. */
json_t *dg_translate_picture(const char *media_type, const char *base64);

/* {"id", "type": "function", "function": {name, arguments}}; what is NULL is left out. */
json_t *dg_translate_call(json_t *id, json_t *name, json_t *arguments);

/* A string, or what the members of a list have under `name`, put together with `between`; NULL:
 * memory is out. The caller owns it. */
json_t *dg_translate_text(const json_t *content, const char *name, const char *between);

/* How much a model is to think, in all dialects that say it in words. */
#define DG_EFFORTS "none, minimal, low, medium, high, xhigh and max"
bool dg_is_effort(const char *word);

bool dg_json_says(const json_t *value, const char *text);

#endif
