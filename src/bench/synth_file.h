/* Synthetic models as GGUF files: see dgemma_synth. */
#ifndef DG_BENCH_SYNTH_FILE_H
#define DG_BENCH_SYNTH_FILE_H

#include <stdint.h>
#include "dgemma_tools.h"

dgemma_status dg_synth_write(const dgemma_synth_options *opt, uint64_t *bytes, dgemma_error *err);

#endif
