/* What answers are not held to, looked at afterwards: which keywords of a schema a value violates.
 * Pure functions of JSON. */
#ifndef DG_SERVER_SCHEMA_CHECK_H
#define DG_SERVER_SCHEMA_CHECK_H

#include <jansson.h>

/* Adds "KEYWORD at #POINTER" to *list for each keyword that is violated, once; the pointer is that
 * of the keyword's schema, behind `base`. Inside of alternatives, conditions and negations the
 * keyword that holds them is named. What cannot be told, as of `pattern`, `format`, `unevaluated…`
 * and other documents, and what would take too long, is not reported. *list becomes NULL when
 * memory is out. */
void dg_schema_check(json_t **list, const json_t *schema, const json_t *value, const char *base);

#endif
