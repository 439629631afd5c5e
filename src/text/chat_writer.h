/* Shared by the files that write a prompt: text and marks with one error for all of it, and values
 * in the format's own notation. */
#ifndef DG_TEXT_CHAT_WRITER_H
#define DG_TEXT_CHAT_WRITER_H

#include "text/chat_template.h"
#include "text/json_tree.h"

/* The first failure stays in `status`; nothing is written after it, so that callers need not ask
 * after each word. */
typedef struct dg_chat_writer {
    dg_prompt *prompt;
    dg_chat_revision revision;
    dgemma_status status;
    dgemma_error *err;
} dg_chat_writer;

void dg_chat_put(dg_chat_writer *w, dg_text text);
void dg_chat_puts(dg_chat_writer *w, const char *s);
void dg_chat_mark(dg_chat_writer *w, const char *marker);
void dg_chat_slot(dg_chat_writer *w, dg_part_kind kind, size_t message, size_t part);

/* This buffer took no more: the ceiling, when it is near, else memory. */
void dg_chat_fail_full(dg_chat_writer *w, const dg_buf *b);

void dg_chat_str(dg_chat_writer *w, const dg_json *v);   /* as Python's str() */
void dg_chat_upper(dg_chat_writer *w, const dg_json *v); /* … .upper() */
void dg_chat_quoted(dg_chat_writer *w, dg_text text);    /* between <|"|> */

/* {k:v,…} with sorted keys, [a,b], strings in <|"|>, bare numbers and words; keys too in <|"|> when
 * asked. */
void dg_chat_value(dg_chat_writer *w, const dg_json *v, bool quote_keys);
void dg_chat_members(dg_chat_writer *w, const dg_json *object, bool quote_keys); /* k:v,… */

/* ---- tools (chat_tools.c) ---- */

/* <|tool>declaration:…<tool|> for each of an array of tools. */
void dg_chat_declare(dg_chat_writer *w, const dg_json *tools);

void dg_chat_call(dg_chat_writer *w, const dg_tool_call *call, const char *where);

/* A result that is a value: an object lists its members, anything else stands under `value`. */
void dg_chat_response(dg_chat_writer *w, dg_text name, dg_text json, const char *where);
void dg_chat_response_text(dg_chat_writer *w, dg_text name, dg_text text);

/* ---- sorted members ---- */

typedef struct dg_chat_sorted {
    const dg_json **at; /* [n]; dg_free */
    size_t n;
} dg_chat_sorted;

/* The members of an object by key, upper and lower case alike, otherwise as they stood. */
dg_chat_sorted dg_chat_sort(dg_chat_writer *w, const dg_json *object);

#endif
