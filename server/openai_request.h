/* Bodies of /v1/chat/completions and /v1/completions. Pure functions: the fuzzer runs them too. */
#ifndef DG_SERVER_OPENAI_REQUEST_H
#define DG_SERVER_OPENAI_REQUEST_H

#include "chat_request.h"
#include "errors.h"

/* Takes `root`, a JSON object. False: *e says what is wrong, and *out is empty. Fields that are
 * not known are not looked at. Without a seed, `seed` is it. */
bool dg_openai_read_chat(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                         dg_http_error *e);
bool dg_openai_read_completion(dg_chat *out, json_t *root, const dg_chat_limits *limits,
                               uint64_t seed, dg_http_error *e);

/* Token ids of a JSON array, in memory of the caller's (dg_free). */
bool dg_openai_read_ids(const json_t *list, int n_vocab, const char *param, int32_t **out,
                        size_t *n, dg_http_error *e);

#endif
