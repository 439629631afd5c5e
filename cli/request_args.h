/* The options that describe a model and a request, for every command that answers prompts. */
#ifndef DG_CLI_REQUEST_ARGS_H
#define DG_CLI_REQUEST_ARGS_H

#include "lora_args.h"

enum { CLI_MAX_STOP = 16, CLI_MAX_MEDIA = 64, CLI_MAX_OPTION = 64 };

/* What the command line said. Numbers that are -1 or NaN were not said: the model's own stay. */
typedef struct cli_request_args {
    dgemma_engine_options engine;
    const char *system, *kv_type;
    bool think, hide_thinking, quiet; /* quiet: about the default model */
    uint64_t seed;
    int max_tokens, think_budget, steps, stability, canvas, top_k, settled;
    float t_min, t_max, entropy_bound, confidence, temperature, top_p, min_p;
    const char *stop[CLI_MAX_STOP];
    size_t n_stop;
    dgemma_media media[CLI_MAX_MEDIA];
    size_t n_media;
    int image_tokens;
    cli_lora_args lora;
} cli_request_args;

cli_request_args cli_request_defaults(void);

/* A command's table of options, put together from groups. */
typedef struct cli_options {
    cli_option row[CLI_MAX_OPTION];
    size_t n;
} cli_options;

void cli_options_add(cli_options *o, const cli_option *rows, size_t n);
void cli_options_add_model(cli_options *o, cli_request_args *a);     /* -m, pictures, template */
void cli_options_add_answer(cli_options *o, cli_request_args *a);    /* with its heading */
void cli_options_add_draws(cli_options *o, cli_request_args *a);     /* with its heading */
void cli_options_add_diffusion(cli_options *o, cli_request_args *a); /* with its heading */
void cli_options_add_machine(cli_options *o, cli_request_args *a);   /* with its heading */
void cli_options_add_request(cli_options *o, cli_request_args *a);   /* all of these */
void cli_options_add_passage(cli_options *o, cli_request_args *a);   /* all but thoughts */

/* One more file for the prompt; false when there are too many. */
bool cli_request_add_media(cli_request_args *a, const char *path, bool video);

/* Looks at the options together, and finds the default model where none was named. False: a message
 * has been printed, and *code is what to exit with. */
bool cli_request_check(const char *command, cli_request_args *a, int *code);

/* Puts what was said into *o; the prompt, its pictures and the system message are the caller's. */
void cli_request_apply(const cli_request_args *a, dgemma_request_options *o);

#endif
