/* What a tokenizer is made from: plain arrays that a reader of any file format can fill. Everything
 * is borrowed for the length of one call. */
#ifndef DG_TEXT_VOCABULARY_H
#define DG_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DG_VOCABULARY_MAX_PIECES = 1 << 22,
    DG_VOCABULARY_MAX_MERGES = 1 << 24,
    DG_VOCABULARY_MAX_BYTES = 1 << 26, /* of all pieces together */
    DG_PIECE_MAX = 4096,               /* bytes of one piece */
    DG_PIECE_MAX_ADDED = 256,  /* of an added token: bounds the search at each place in a text */
    DG_PIECE_MAX_DERIVED = 256 /* where merges are derived: every split of a piece is looked up */
};

typedef struct dg_piece {
    const char *text; /* UTF-8; need not end with a NUL */
    size_t len;
} dg_piece;

typedef struct dg_merge {
    dg_piece left, right;
} dg_merge;

/* A token that is matched literally in the text, before any merging. */
typedef struct dg_added_token {
    int32_t id;
    bool special; /* not printed unless asked for, and never made out of plain text */
} dg_added_token;

typedef struct dg_vocabulary {
    const char *where;      /* the file, for messages */
    const dg_piece *pieces; /* [n_piece], in the order of their ids; all 256 of <0x00> to <0xFF> */
    size_t n_piece;
    const dg_merge
        *merges; /* [n_merge], best rank first; NULL: derived from the pieces (merges.h) */
    size_t n_merge;
    const dg_added_token *added;
    size_t n_added;
    bool keep_spaces; /* a space stays one, instead of standing in pieces as U+2581 */
} dg_vocabulary;

/* Splits "left right", the older way to write a merge, at the first space after the first character
 * (a left part may itself be a space). False when there is none. */
bool dg_merge_split(dg_merge *out, const char *text, size_t len);

#endif
