/* Steps whose canvases are held to a constraint, as those of requests are. */
#ifndef DG_BENCH_BENCH_GUIDED_H
#define DG_BENCH_BENCH_GUIDED_H

#include "dgemma_tools.h"
#include "engine/guide.h"
#include "model/forward.h"

typedef struct dg_bench_guided dg_bench_guided;

/* For `batch` canvases of this model; tokenizer NULL: it has none, and one is made up. The
 * constraint is borrowed. *out belongs to the caller (dg_bench_guided_close). */
dgemma_status dg_bench_guided_open(dg_bench_guided **out, dgemma_constraint *constraint,
                                   const dg_config *cfg, const dg_tokenizer *tokenizer, int batch,
                                   dgemma_error *err);
void dg_bench_guided_close(dg_bench_guided *g); /* NULL is fine */

/* Before a pass over the works' canvases, and behind it. */
void dg_bench_guided_ask(dg_bench_guided *g, dg_work *work);
dgemma_status dg_bench_guided_take(dg_bench_guided *g, dg_work *work, dgemma_error *err);

#endif
