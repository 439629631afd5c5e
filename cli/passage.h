/* Gaps in texts, for the commands that fill them and write passages anew. */
#ifndef DG_CLI_PASSAGE_H
#define DG_CLI_PASSAGE_H

#include "base/buf.h"
#include "request_args.h"

enum { CLI_GAP_TEXT_MAX = 64 << 20 };

/* The first code point at or behind byte `at` that is number n, counted on from *seen; its byte.
 * False: the text is shorter. */
bool cli_gap_find(const char *text, size_t len, long n, size_t *at, long *seen);

/* Blanks at both ends of a passage stay outside of it. */
void cli_gap_trim(const char *text, size_t *start, size_t *end);

/* Opens the model of the options, which were checked; a message has been printed when it fails. */
dgemma_engine *cli_gap_open(cli_request_args *a);

/* Runs a request with a suffix and appends what fills the gap to *out. */
dgemma_status cli_gap_fill(dgemma_engine *engine, const dgemma_request_options *o, dg_buf *out,
                           dgemma_stats *stats, dgemma_error *err);

/* "18 tokens, found among 12 lengths, in 31 steps; the model agrees with 97 % of what follows" */
void cli_gap_report(FILE *out, const dgemma_stats *st);

#endif
