/* The custom_ids of a batch: which were asked, by which line, and which were answered. */
#ifndef DG_SERVER_BATCH_IDS_H
#define DG_SERVER_BATCH_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dg_batch_id {
    char *custom_id; /* owned */
    uint64_t line;   /* that asks it, from 1; 0: none so far */
    char mark[25];   /* what was answered under it; "": nothing */
} dg_batch_id;

typedef struct dg_batch_ids {
    dg_batch_id *list;
    uint32_t *table; /* places in the list from 1; 0: empty */
    size_t n, n_table, max;
} dg_batch_ids;

void dg_batch_ids_init(dg_batch_ids *ids, size_t max);
void dg_batch_ids_clear(dg_batch_ids *ids);

/* The one with this name, which is made if need be; it moves when another is. NULL: there are as
 * many as there may be, or memory is out. */
dg_batch_id *dg_batch_ids_get(dg_batch_ids *ids, const char *custom_id);

#endif
