/* A conversation as plain structs. Every string is borrowed from whoever made the conversation and
 * need not end with a NUL. */
#ifndef DG_TEXT_CONVERSATION_H
#define DG_TEXT_CONVERSATION_H

#include "base/error.h"

typedef struct dg_text {
    const char *data; /* NULL: not there, which is not the same as empty */
    size_t len;
} dg_text;

/* A string literal as a dg_text. */
#define DG_TEXT(literal) ((dg_text){literal, sizeof(literal) - 1})

typedef enum dg_role {
    DG_ROLE_SYSTEM,
    DG_ROLE_DEVELOPER,
    DG_ROLE_USER,
    DG_ROLE_ASSISTANT,
    DG_ROLE_TOOL
} dg_role;

typedef enum dg_part_kind {
    DG_PART_TEXT,
    DG_PART_IMAGE,
    DG_PART_AUDIO,
    DG_PART_VIDEO
} dg_part_kind;

typedef struct dg_part {
    dg_part_kind kind;
    dg_text
        text; /* TEXT: what it says; otherwise the medium's address (a data: URL, say), if any */
} dg_part;

typedef enum dg_content_kind {
    DG_CONTENT_NONE,
    DG_CONTENT_TEXT,  /* `text` */
    DG_CONTENT_PARTS, /* `parts` */
    DG_CONTENT_JSON   /* `text` is a JSON value; for messages of role tool only */
} dg_content_kind;

typedef struct dg_content {
    dg_content_kind kind;
    dg_text text;
    const dg_part *parts; /* [n_part] */
    size_t n_part;
} dg_content;

typedef struct dg_tool_call {
    dg_text id; /* may be missing */
    dg_text name;
    dg_text arguments; /* JSON object; missing: none */
} dg_tool_call;

/* What a tool answered, kept on the message that called it: an older way than messages of role
 * tool. */
typedef struct dg_tool_result {
    dg_text name;     /* may be missing */
    dg_text response; /* JSON value */
} dg_tool_result;

typedef struct dg_message {
    dg_role role;
    dg_content content;
    dg_text reasoning;         /* what the assistant thought before it answered; may be missing */
    const dg_tool_call *calls; /* [n_call] */
    size_t n_call;
    const dg_tool_result *results; /* [n_result] */
    size_t n_result;
    dg_text call_id, name; /* role tool: which call this answers, and of which function, if known */
} dg_message;

typedef struct dg_conversation {
    const dg_message *messages; /* [n_message] */
    size_t n_message;
    /* JSON array of functions the model may call, each {"type":"function","function":{…}} or the
     * inner object alone. Missing: none. */
    dg_text tools;
    bool thinking;              /* ask the model to think first */
    bool preserve_thinking;     /* keep the reasoning of calls before the last user message too */
    bool add_generation_prompt; /* end with the opening of the model's answer */
} dg_conversation;

/* ---- from JSON ---- */

/* Reads messages as the OpenAI API has them. The text is either the array of messages, or an object
 * with the keys "messages", "tools", "enable_thinking", "preserve_thinking" and
 * "add_generation_prompt" (true when it is missing), of which only the first must be there; other
 * keys are not looked at, so that the body of a request can be given as it came.
 *
 *   role           system, developer, user, assistant, tool
 *   content        a string, null, or a list of parts: text (also input_text, output_text); image,
 *                  image_url, input_image; audio, audio_url, input_audio; video, video_url,
 *                  input_video
 *   reasoning      or reasoning_content
 *   tool_calls     {id, function: {name, arguments}}; arguments are an object, or one as a string
 *   tool_responses {name, response}
 *   tool_call_id, name
 *
 * *out belongs to the caller (dg_conversation_free) and owns all it points to; its flags may be
 * changed. DGEMMA_E_ARG names the message and the key that is wrong, DGEMMA_E_LIMIT: too large or
 * too deep. */
dgemma_status dg_conversation_from_json(dg_conversation **out, const char *json, size_t len,
                                        dgemma_error *err);
void dg_conversation_free(dg_conversation *c); /* of dg_conversation_from_json; NULL is fine */

#endif
