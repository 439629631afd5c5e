/* Formats of strings as regular expressions. Each is a part of what its RFC allows, so that a
 * strict checker is content: no leap seconds, names of up to eight labels, and so on. */
#ifndef DG_CONSTRAINT_FORMATS_H
#define DG_CONSTRAINT_FORMATS_H

#include <stdbool.h>
#include <stddef.h>

/* The expression for the whole string; NULL: the format is a note, to us. `limited`: one whose
 * strings are not longer than what schemas of that format commonly allow. */
const char *dg_format_regex(const char *name, size_t len, bool limited);

/* A pattern that many schemas have and that needs a look-ahead, in other words: what it matches
 * anywhere in a string, neither more nor less. NULL: it is none of those. */
const char *dg_pattern_reworded(const char *pattern, size_t len);

#endif
