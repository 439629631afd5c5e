/* --lora [NAME=]PATH[:SCALE]: adapters to load, in the order of the command line. */
#ifndef DG_CLI_LORA_ARGS_H
#define DG_CLI_LORA_ARGS_H

#include "cli.h"

#define CLI_LORA_HELP                                                                              \
    "an adapter: a PEFT folder or GGUF file, and its strength, from -1000 to 1000 (1); may be "    \
    "repeated"

typedef struct cli_lora_args {
    dgemma_adapter list[DGEMMA_MAX_ADAPTERS];
    dgemma_adapter_use use[DGEMMA_MAX_ADAPTERS]; /* all of them, as they were given */
    size_t n;
    const char *wanted; /* what the last word lacked; NULL: nothing */
} cli_lora_args;

/* A setter of cli_option, whose target is a cli_lora_args. Cuts the word where it lies: it is one
 * of main()'s, which are the program's to change. false, and nothing is cut: something is
 * missing, or there is a scale that is none where without it there would be a file. */
bool cli_add_lora(void *target, const char *text);

#endif
