/* Sets of Unicode characters, and how they are spelled in bytes. */
#ifndef DG_CONSTRAINT_POINTS_H
#define DG_CONSTRAINT_POINTS_H

#include "constraint/syntax.h"

/* Where a character stands: as it is; inside a JSON string, where some have escapes; or in a string
 * of a call, as it is, of control characters only tab, newline and return. */
typedef enum dg_spelling { DG_SPELL_RAW, DG_SPELL_JSON, DG_SPELL_CALL } dg_spelling;

typedef struct dg_span {
    uint32_t lo, hi;
} dg_span;

/* A zeroed one is empty. */
typedef struct dg_points {
    dg_span *span; /* owned */
    size_t n, cap;
    bool failed; /* there were too many, or */
    bool no_memory;
    bool blanks; /* made with \s or \S, on which readers of expressions do not quite agree */
} dg_points;

void dg_points_clear(dg_points *p);
void dg_points_add(dg_points *p, uint32_t lo, uint32_t hi);
void dg_points_add_all(dg_points *p, const dg_points *other);
void dg_points_negate(dg_points *p);
bool dg_points_has(const dg_points *p, uint32_t c);

/* \d \w \s as ECMAScript has them. */
void dg_points_add_class(dg_points *p, char letter);

/* One character of the set. Surrogates are none. Inside a JSON string control characters have their
 * short escapes or cannot be written; everything else but " and \ stands as it is. */
dg_node dg_points_node(dg_syntax *s, dg_points *p, dg_spelling spelling);

/* Any character, and any text. */
dg_node dg_points_any(dg_syntax *s, dg_spelling spelling);
dg_node dg_points_text(dg_syntax *s, dg_spelling spelling);

/* Appends the character as a JSON string holds it; those without a short escape as \u00XX. Returns
 * how many bytes, at most 6. */
size_t dg_points_escape(char out[6], uint32_t c);

#endif
