/* Conversations as the model was trained to see them. */
#ifndef DG_TEXT_CHAT_TEMPLATE_H
#define DG_TEXT_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

/* Whether the tokenizer has the markers that turns are made of. */
bool dg_chat_supported(const dg_tokenizer *t);

/* One message of a user, trimmed, and the opening of the model's answer, thinking off:
 *     <bos><|turn>user⏎TEXT<turn|>⏎<|turn>model⏎<|channel>thought⏎<channel|>
 * Markers in the text are text. */
dgemma_status dg_chat_user_turn(const dg_tokenizer *t, const char *text, size_t len, dg_tokens *out,
                                dgemma_error *err);

#endif
