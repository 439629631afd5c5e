/* Tool calls as the model writes them, call:NAME{key:value,…}, into JSON. What is not quite in the
 * format is understood where only one thing can be meant. */
#ifndef DG_TEXT_CALL_SYNTAX_H
#define DG_TEXT_CALL_SYNTAX_H

#include "base/buf.h"
#include "text/conversation.h"

/* Stands for the token <|"|> in the text of a call: a byte that UTF-8 never has. */
#define DG_CALL_QUOTE '\xFF'

enum { DG_CALL_MAX_DEPTH = 64, DG_CALL_MAX_NAME = 128 };

/* Takes one call off the front of *body, which is UTF-8 but for the quotes: name and arguments, a
 * JSON object, replace what is in the buffers. Understood beside the native syntax:
 *
 *   call:f(k: "v"), call:f(k=1)    round brackets
 *   call:f{k:"v"}, {k:'v'}         other quotes, with the escapes of JSON
 *   call:f{k:some text}            bare text; true, null and numbers are such, also True and None
 *   call:f{k:<|"|>v}               a last string that is not closed, where its brackets pair up
 *   call:f{k:1, call:f             closing brackets, or all of the arguments, missing at the end
 *   :f{}, f{}                      without the word
 *   {"name":"f","arguments":{}}    JSON
 *
 * `finished`: the model said that the call ends here. If it did not, nothing is completed for it.
 * DGEMMA_E_ARG: not a call, or not certain which; *body is as it was. DGEMMA_E_NOMEM. */
dgemma_status dg_call_read(dg_text *body, bool finished, dg_buf *name, dg_buf *arguments);

#endif
