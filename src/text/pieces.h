/* The pieces of a vocabulary in one block of memory, found by id or by text. */
#ifndef DG_TEXT_PIECES_H
#define DG_TEXT_PIECES_H

#include "base/error.h"
#include "text/vocabulary.h"

enum dg_piece_kind {
    DG_PIECE_BYTE = 1,  /* <0x00> to <0xFF> */
    DG_PIECE_ADDED = 2, /* matched literally */
    DG_PIECE_SPECIAL = 4
};

typedef struct dg_piece_slot dg_piece_slot;

typedef struct dg_pieces {
    int32_t n;
    char *text;           /* all pieces, one after the other */
    uint32_t *start;      /* [n + 1], into text */
    unsigned char *kinds; /* [n], dg_piece_kind */
    int32_t byte_id[256];
    dg_piece_slot *slots; /* open addressing, n_slot a power of two */
    size_t n_slot;
} dg_pieces;

/* Copies and checks: every piece is UTF-8, not empty and unique, all byte tokens are there. *p is
 * zero before; clear it also after a failure. */
dgemma_status dg_pieces_init(dg_pieces *p, const dg_vocabulary *v, dgemma_error *err);
void dg_pieces_clear(dg_pieces *p);

/* Id of the piece with this text, or -1. */
int32_t dg_pieces_find(const dg_pieces *p, const char *text, size_t len);

/* The same for a caller that looks up one prefix after the other: `hash` is that of the text so
 * far. */
uint64_t dg_pieces_hash(uint64_t hash, const char *text, size_t len);
int32_t dg_pieces_find_hashed(const dg_pieces *p, uint64_t hash, const char *text, size_t len);
#define DG_PIECES_HASH_START UINT64_C(0xCBF29CE484222325)

/* Value of a piece of kind DG_PIECE_BYTE. */
unsigned char dg_pieces_byte(const dg_pieces *p, int32_t id);

static inline dg_piece dg_pieces_at(const dg_pieces *p, int32_t id)
{
    return (dg_piece){p->text + p->start[id], p->start[id + 1] - p->start[id]};
}

#endif
