/* What a server allows and takes for granted, for tests of what it reads. */
#ifndef DG_TESTS_CHAT_LIMITS_H
#define DG_TESTS_CHAT_LIMITS_H

#include "server/chat_request.h"

static const dg_chat_limits dg_test_chat_limits = {
    .defaults = {.max_tokens = 4096,
                 .temperature = 1,
                 .top_p = 1,
                 .thinking_budget = -1,
                 .n_logprobs = -1,
                 .max_denoise_steps = 48,
                 .canvas_length = 256},
    .n_vocab = 1000,
    .max_choices = 8,
    .max_images = 2,
};

#endif
