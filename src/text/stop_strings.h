/* Strings that end an answer where they appear in it. Text goes through; what could be the
 * beginning of a stop string is held back until it is known. Which of several ends it is a matter
 * of the text alone, not of the pieces it comes in: the one that starts first, of those the
 * shortest, of equal ones the first given. */
#ifndef DG_TEXT_STOP_STRINGS_H
#define DG_TEXT_STOP_STRINGS_H

#include "base/error.h"

typedef struct dg_stop_strings dg_stop_strings;

enum { DG_STOP_MAX_STRINGS = 64, DG_STOP_MAX_BYTES = 4096 };

/* Copies the strings. An empty one, one that is too long, or too many: DGEMMA_E_ARG. */
dgemma_status dg_stop_strings_create(dg_stop_strings **out, const char *const *strings, size_t n,
                                     dgemma_error *err);
void dg_stop_strings_free(dg_stop_strings *s);

/* Gets NUL-terminated text; false from it is remembered by whoever wrote it. */
typedef bool dg_stop_text_fn(void *user, const char *text, size_t len);

/* Passes on what is certainly not part of a stop string; once one was found, nothing. False: memory
 * is out. */
bool dg_stop_strings_push(dg_stop_strings *s, const char *text, size_t len, dg_stop_text_fn *out,
                          void *user);

/* Which string came, from 1; 0: none did. */
int dg_stop_strings_found(const dg_stop_strings *s);

/* The text ends here, or something else comes in between: passes on what was held back, up to the
 * first stop string that is complete in it. More may be pushed afterwards. */
void dg_stop_strings_flush(dg_stop_strings *s, dg_stop_text_fn *out, void *user);

#endif
