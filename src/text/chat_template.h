/* Conversations as the model was trained to see them. What the checkpoints' Jinja templates do is
 * written out here in C, quirks and all; a template itself is never run. */
#ifndef DG_TEXT_CHAT_TEMPLATE_H
#define DG_TEXT_CHAT_TEMPLATE_H

#include "text/conversation.h"
#include "text/tokenizer.h"

/* Two templates are in use. A came with Gemma 4 in April 2026 and with the first files of
 * DiffusionGemma: with thinking off its prompt ends in an empty, closed thought. B is of July 2026:
 * nothing follows the opening of the model's turn. */
typedef enum dg_chat_revision {
    DG_CHAT_UNKNOWN,
    DG_CHAT_REVISION_A,
    DG_CHAT_REVISION_B
} dg_chat_revision;

/* Which of the two a checkpoint's template is, told by what it writes and reads rather than by its
 * bytes, so that a changed comment or a licence header does not matter. */
dg_chat_revision dg_chat_revision_of(const char *template_text);

/* ---- the prompt ---- */

typedef struct dg_prompt_mark {
    size_t start, len; /* in the text */
} dg_prompt_mark;

/* Where an image, a recording or a video goes: its placeholder is one of the marks. */
typedef struct dg_prompt_slot {
    dg_part_kind kind;
    size_t message, part; /* conversation.messages[message].content.parts[part] */
    size_t mark;
    size_t token; /* index of the placeholder among the ids; set by dg_prompt_encode */
} dg_prompt_slot;

typedef struct dg_prompt {
    dg_buf text;
    /* Special tokens that the template wrote, in order. The same characters anywhere else came from
     * people or tools and are plain text. */
    dg_prompt_mark *marks;
    size_t n_mark, cap_mark;
    dg_prompt_slot *slots; /* in order */
    size_t n_slot, cap_slot;
    bool in_thought; /* the prompt ends inside a thought: the answer begins with thinking */
} dg_prompt;

enum { DG_PROMPT_MAX_TEXT = DG_ENCODE_MAX_TEXT };

void dg_prompt_init(dg_prompt *p);
void dg_prompt_clear(dg_prompt *p); /* frees; may be used again */

/* Fills *out, which was initialised; what it held before is dropped. DGEMMA_E_ARG: a template would
 * have raised an error here, or a JSON text in the conversation is broken. Two things are kinder
 * than in the templates: A prints a system message that is a list of parts or missing as Python
 * prints the list or None; here it is printed as in B.
 *
 * Messages of role tool without a call in front of them, and in A images among their parts, are
 * left out, as the templates do. */
dgemma_status dg_chat_render(const dg_conversation *c, dg_chat_revision revision, dg_prompt *out,
                             dgemma_error *err);

/* Whether the tools, an array as in dg_conversation, declare a function of this name; `n` is how
 * many they are. Missing tools: none. */
dgemma_status dg_chat_find_tool(dg_text tools, const char *name, bool *found, size_t *n,
                                dgemma_error *err);

/* Appends the ids: marks as the tokens they name, everything else as text in which no special token
 * is seen. DGEMMA_E_UNSUPPORTED: the tokenizer lacks a marker. DGEMMA_E_LIMIT: out->max was
 * reached, and out->least says more. */
dgemma_status dg_prompt_encode(const dg_tokenizer *t, dg_prompt *p, dg_tokens *out,
                               dgemma_error *err);

/* ---- the simplest conversation ---- */

/* Whether the tokenizer has the markers that turns are made of. */
bool dg_chat_supported(const dg_tokenizer *t);

/* One message of a user, trimmed, and the opening of the model's answer, thinking off:
 *     <bos><|turn>user⏎TEXT<turn|>⏎<|turn>model⏎<|channel>thought⏎<channel|>
 * Markers in the text are text. */
dgemma_status dg_chat_user_turn(const dg_tokenizer *t, const char *text, size_t len, dg_tokens *out,
                                dgemma_error *err);

#endif
