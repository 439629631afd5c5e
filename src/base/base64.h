/* Base64 as in data URLs (RFC 4648, with or without padding; white space is skipped). */
#ifndef DG_BASE_BASE64_H
#define DG_BASE_BASE64_H

#include "base/buf.h"
#include "base/error.h"

/* Appends the decoded bytes to *out. DGEMMA_E_ARG: the text is not base64, _LIMIT: *out is full,
 * _NOMEM. */
dgemma_status dg_base64_decode(dg_buf *out, const char *text, size_t len);

/* Appends the text of `size` bytes, padded. False: *out is full. */
bool dg_base64_encode(dg_buf *out, const void *data, size_t size);

#endif
