#include "batch_ids.h"
#include <string.h>
#include <xxhash.h>
#include "base/alloc.h"

void dg_batch_ids_init(dg_batch_ids *ids, size_t max)
{
    *ids = (dg_batch_ids){.max = max < UINT32_MAX ? max : UINT32_MAX - 1};
}

void dg_batch_ids_clear(dg_batch_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        dg_free(ids->list[i].custom_id);
    dg_free(ids->list);
    dg_free(ids->table);
    *ids = (dg_batch_ids){.max = ids->max};
}

/* Where it is in the table, or where it would be. */
static size_t place_of(const dg_batch_ids *ids, const char *custom_id)
{
    size_t at = XXH3_64bits(custom_id, strlen(custom_id)) & (ids->n_table - 1);
    while (ids->table[at] && strcmp(ids->list[ids->table[at] - 1].custom_id, custom_id) != 0)
        at = (at + 1) & (ids->n_table - 1);
    return at;
}

/* Twice the table, and the list for half of that. */
static bool grow(dg_batch_ids *ids)
{
    size_t n_table = ids->n_table ? 2 * ids->n_table : 1024;
    dg_batch_id *list = dg_array_resize(ids->list, n_table / 2, sizeof *list);
    if (!list)
        return false;
    ids->list = list;
    uint32_t *table = dg_calloc(n_table, sizeof *table);
    if (!table)
        return false;
    dg_free(ids->table);
    ids->table = table;
    ids->n_table = n_table;
    for (size_t i = 0; i < ids->n; i++)
        ids->table[place_of(ids, ids->list[i].custom_id)] = (uint32_t)i + 1;
    return true;
}

dg_batch_id *dg_batch_ids_get(dg_batch_ids *ids, const char *custom_id)
{
    size_t at = ids->n_table ? place_of(ids, custom_id) : 0;
    if (ids->n_table && ids->table[at])
        return &ids->list[ids->table[at] - 1];
    if (ids->n >= ids->max)
        return NULL;
    if (ids->n == ids->n_table / 2) {
        if (!grow(ids))
            return NULL;
        at = place_of(ids, custom_id);
    }
    char *copy = dg_strdup(custom_id);
    if (!copy)
        return NULL;
    dg_batch_id *id = &ids->list[ids->n++];
    *id = (dg_batch_id){.custom_id = copy};
    ids->table[at] = (uint32_t)ids->n;
    return id;
}
