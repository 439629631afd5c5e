/* Tells checkpoints apart. */
#ifndef DG_FORMAT_CHECKPOINT_MARK_H
#define DG_FORMAT_CHECKPOINT_MARK_H

#include "format/checkpoint.h"

/* A number that two checkpoints have in common only where their weights are the same, for all that
 * names, types, shapes and a look at the values of each tensor tell; what a config says beside is
 * not in it. 0: out of memory. */
uint64_t dg_checkpoint_mark(const dg_checkpoint *ck);

#endif
