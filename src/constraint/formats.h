/* Formats of strings as regular expressions. Each is a part of what its RFC allows, so that a
 * strict checker is content: no leap seconds, names of up to eight labels, and so on. */
#ifndef DG_CONSTRAINT_FORMATS_H
#define DG_CONSTRAINT_FORMATS_H

#include <stddef.h>

/* The expression for the whole string; NULL: the format is a note, to us. */
const char *dg_format_regex(const char *name, size_t len);

#endif
