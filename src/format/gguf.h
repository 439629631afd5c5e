/* One GGUF file: typed keys and values, then tensors. The parser is a pure function of a buffer;
 * strings and arrays are views into it, so a vocabulary costs no allocation per word. */
#ifndef DG_FORMAT_GGUF_H
#define DG_FORMAT_GGUF_H

#include "base/error.h"
#include "tensor/tensor.h"

/* Value types by their numbers in the file. */
typedef enum dg_gguf_type {
    DG_GGUF_U8,
    DG_GGUF_I8,
    DG_GGUF_U16,
    DG_GGUF_I16,
    DG_GGUF_U32,
    DG_GGUF_I32,
    DG_GGUF_F32,
    DG_GGUF_BOOL,
    DG_GGUF_STRING,
    DG_GGUF_ARRAY,
    DG_GGUF_U64,
    DG_GGUF_I64,
    DG_GGUF_F64,
    DG_GGUF_TYPES
} dg_gguf_type;

/* Bytes of the file; no NUL at the end, any bytes inside. */
typedef struct dg_gguf_text {
    const char *text;
    size_t len;
} dg_gguf_text;

typedef struct dg_gguf_value {
    dg_gguf_text key;
    dg_gguf_type type; /* of the value or, with is_array, of each element */
    bool is_array;
    size_t n;                  /* elements; 1 for a plain value */
    const unsigned char *data; /* the first element: little-endian, unaligned */
} dg_gguf_value;

typedef struct dg_gguf {
    int version; /* 2 or 3 */
    dg_gguf_value *value;
    size_t n_value;    /* sorted by key */
    dg_tensor *tensor; /* sorted by name; shapes are row-major, so reversed; names are owned here */
    size_t n_tensor;
    char *names;
} dg_gguf;

/* Parses the file image [data, data + size). `where` names it in errors. The buffer must outlive
 * *out. A tensor of a type that dg_dtype lacks is DGEMMA_E_UNSUPPORTED; so are versions other than
 * 2 and 3, and big-endian files. On failure *out is empty. */
dgemma_status dg_gguf_parse(dg_gguf *out, const void *data, size_t size, const char *where,
                            dgemma_error *err);
void dg_gguf_clear(dg_gguf *g);

const dg_tensor *dg_gguf_tensor(const dg_gguf *g, const char *name);  /* or NULL */
const dg_gguf_value *dg_gguf_find(const dg_gguf *g, const char *key); /* or NULL */

/* ---- values ----  v may be NULL: absent. Each gives false, *out untouched, when there is no
 * element i, or it is not of that kind or does not fit. A plain value is its own element 0. */
bool dg_gguf_int(const dg_gguf_value *v, size_t i, int64_t *out);   /* of any width */
bool dg_gguf_float(const dg_gguf_value *v, size_t i, double *out);  /* integers too */
bool dg_gguf_bool(const dg_gguf_value *v, size_t i, bool *out);     /* integers 0 and 1 too */
bool dg_gguf_string(const dg_gguf_value *v, dg_gguf_text *out);     /* a plain string */
bool dg_gguf_string_is(const dg_gguf_value *v, const char *wanted); /* a plain string, this one */

/* Walks over the strings of an array (or a plain string) in order. */
typedef struct dg_gguf_strings {
    const unsigned char *at;
    size_t left;
} dg_gguf_strings;
dg_gguf_strings dg_gguf_strings_of(const dg_gguf_value *v); /* none when it is something else */
bool dg_gguf_strings_next(dg_gguf_strings *s, dg_gguf_text *out);

/* ---- tensor types ---- */

/* The number that GGUF has for a type; -1: none. */
int dg_gguf_type_of(dg_dtype type);

#endif
