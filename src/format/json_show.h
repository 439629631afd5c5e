/* A value of a JSON document as text, for errors about it. */
#ifndef DG_FORMAT_JSON_SHOW_H
#define DG_FORMAT_JSON_SHOW_H

#include <jansson.h>

enum { DG_JSON_SHOWN = 64 };

/* One line of ASCII, cut to a readable length; "missing" for NULL. */
const char *dg_json_show(char out[DG_JSON_SHOWN], const json_t *v);

#endif
