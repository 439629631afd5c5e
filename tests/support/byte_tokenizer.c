#include "support/byte_tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dg_tokenizer *dg_test_byte_tokenizer(const char *const *markers, int n_marker, bool keep_spaces)
{
    static char names[DG_TEST_N_BYTE][8];
    dg_piece pieces[DG_TEST_N_BYTE + DG_TEST_MAX_MARKERS];
    dg_added_token added[DG_TEST_MAX_MARKERS];
    if (n_marker > DG_TEST_MAX_MARKERS)
        abort();
    for (int b = 0; b < DG_TEST_N_BYTE; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", (unsigned)b);
        pieces[b] = (dg_piece){names[b], 6};
    }
    for (int i = 0; i < n_marker; i++) {
        pieces[DG_TEST_N_BYTE + i] = (dg_piece){markers[i], strlen(markers[i])};
        added[i] = (dg_added_token){DG_TEST_N_BYTE + i, true};
    }
    dg_vocabulary v = {.where = "test",
                       .pieces = pieces,
                       .n_piece = (size_t)(DG_TEST_N_BYTE + n_marker),
                       .added = added,
                       .n_added = (size_t)n_marker,
                       .keep_spaces = keep_spaces};
    dg_tokenizer *t;
    if (dg_tokenizer_create(&t, &v, NULL) != DGEMMA_OK)
        abort();
    return t;
}
