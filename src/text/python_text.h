/* Text the way Python prints and compares it. The chat templates are run by Python where the model
 * was trained, so its habits are part of the format. */
#ifndef DG_TEXT_PYTHON_TEXT_H
#define DG_TEXT_PYTHON_TEXT_H

#include "base/buf.h"
#include "text/json_tree.h"

/* str.strip(): without the Unicode white space at both ends. Any bytes are fine. */
dg_text dg_python_strip(dg_text text);

/* Whether v counts as true: not null, false, zero, empty or missing (NULL). */
bool dg_python_truth(const dg_json *v);

/* Appends str(v): 1e16 becomes 1e+16, true True, a list ['a', 1]. NULL prints nothing, as an
 * undefined value in a template does. In strings inside lists, where Python escapes what cannot be
 * printed, only the common ones of those outside ASCII are. False: out of memory or ceiling. */
bool dg_python_str(dg_buf *out, const dg_json *v);

/* Appends str.upper(). Of the characters that become several, only the sharp s does so here. */
bool dg_python_upper(dg_buf *out, dg_text text);

/* Orders by str.lower(), with one lower-case sigma for both. <0, 0, >0. */
int dg_python_compare_lower(dg_text a, dg_text b);

#endif
