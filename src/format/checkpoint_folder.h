/* Which folder a checkpoint lies in, and which files of a kind a folder has. */
#ifndef DG_FORMAT_CHECKPOINT_FOLDER_H
#define DG_FORMAT_CHECKPOINT_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

/* The folder that `path` means, or the one that it lies in (dg_free): from a hub cache folder that
 * of the snapshot. */
dgemma_status dg_folder_find(char **dir, const char *path, dgemma_error *err);

/* What is before the last slash, in memory of the caller's; NULL: no memory. */
char *dg_folder_of(const char *path);

/* What a folder holds of one kind: the number of names and a copy of one of them. */
typedef struct dg_listing {
    size_t n;
    char *name; /* NULL when n is 0 or memory is out */
} dg_listing;

typedef bool dg_wanted_fn(const char *name, const char *suffix);
dg_listing dg_folder_list(const char *dir, dg_wanted_fn *wanted, const char *suffix);
dg_listing dg_folder_list_suffix(const char *dir, const char *suffix);

/* A document that the folder has, as JSON (json_decref). */
dgemma_status dg_folder_json(json_t **out, const char *dir, const char *name, dgemma_error *err);

bool dg_has_suffix(const char *s, const char *suffix);
bool dg_is_plain_name(const char *s); /* that stays in its folder */

#endif
