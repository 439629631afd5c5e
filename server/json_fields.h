/* Fields of a JSON object into a struct, by a table: type, place, range. */
#ifndef DG_SERVER_JSON_FIELDS_H
#define DG_SERVER_JSON_FIELDS_H

#include "errors.h"

typedef enum dg_field_type {
    DG_FIELD_BOOL,
    DG_FIELD_SWITCH, /* a bool too, which may come as 0 or 1 */
    DG_FIELD_INT,
    DG_FIELD_FLOAT
} dg_field_type;

typedef struct dg_field {
    const char *name;
    dg_field_type type;
    size_t offset; /* in the struct */
    double min, max;
} dg_field;

/* Sets what is there; null counts as missing. `where` goes in front of names in messages. */
bool dg_fields_read(void *out, const json_t *object, const char *where, const dg_field *fields,
                    size_t n, dg_http_error *e);

/* False when the object has a member that is none of the fields. */
bool dg_fields_known(const json_t *object, const char *where, const dg_field *fields, size_t n,
                     dg_http_error *e);

/* The member when it is there and not null. */
json_t *dg_field_get(const json_t *object, const char *name);

/* False when it is there and no object (string); *out is NULL when it is missing. */
bool dg_field_object(const json_t *object, const char *name, json_t **out, dg_http_error *e);
bool dg_field_string(const json_t *object, const char *name, const char **out, dg_http_error *e);
bool dg_field_list(const json_t *object, const char *name, json_t **out, dg_http_error *e);

/* A list of whole numbers from 0 and below n_most, to memory of the caller's (dg_free); `param` is
 * what the list is called. */
bool dg_field_ids(const json_t *list, int n_most, const char *param, int32_t **out, size_t *n,
                  dg_http_error *e);

#endif
