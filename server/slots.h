/* What llama-server's clients know as slots: how many answers run, and conversations whose keys and
 * values are saved to files and restored from them. */
#ifndef DG_SERVER_SLOTS_H
#define DG_SERVER_SLOTS_H

#include "calls.h"

void dg_slots_list(dg_call *c);

/* POST /slots/N?action=save or restore, with {"filename": …}: conversation N of this key, the one
 * used last being 0. A restored one is the last. */
void dg_slots_act(dg_call *c);

#endif
