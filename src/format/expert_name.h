/* Names of matrices of which each expert has one of its own. */
#ifndef DG_FORMAT_EXPERT_NAME_H
#define DG_FORMAT_EXPERT_NAME_H

#include <stdbool.h>
#include <stddef.h>

enum { DG_EXPERT_MAX = 1 << 16 };

/* "….experts.17.gate_proj" of n characters: the length of what is before the number, the number,
 * and the projection behind it. False: it is no such name. */
bool dg_expert_name(const char *stem, size_t n, size_t *before, int *expert, const char **proj);

#endif
