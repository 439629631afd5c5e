/* Where pages lie: any mixture within the bound finds room, and a page keeps what it holds when it
 * is moved. */
#include <stdio.h>
#include <string.h>
#include "cuda/cuda_check.h"
#include "cuda/cuda_places.h"

enum { UNIT = 16, MAX_PAGES = 400 }; /* a slab of bytes stands for the device's */

typedef struct model {
    dg_cuda_places places;
    unsigned char *slab;
    bool there[DG_KV_GROUPS][MAX_PAGES];
    int n_move;
} model;

static void move(void *arg, size_t to, size_t from, size_t bytes)
{
    model *m = arg;
    memmove(m->slab + to, m->slab + from, bytes);
    m->n_move++;
}

static unsigned char mark(int g, int page)
{
    return (unsigned char)(1 + (page * 2 + g) % 250);
}

static void expect_pages(const model *m)
{
    for (int g = 0; g < DG_KV_GROUPS; g++)
        for (int i = 0; i < m->places.n_page[g]; i++) {
            if (!m->there[g][i])
                continue;
            size_t at = dg_cuda_place_of(&m->places, (dg_kv_group)g, i);
            for (size_t b = 0; b < m->places.page_bytes[g]; b++)
                if (m->slab[at + b] != mark(g, i)) {
                    case_fail("byte %zu of page %d of group %d is not its own", b, i, g);
                    return;
                }
        }
}

/* Takes and gives at random, close to the bound, as the cache does: a number that is free. */
static void check_places(size_t sliding, size_t global, size_t bytes, bool must_move)
{
    if (!case_begin("places: pages of %zu and %zu bytes in %zu", sliding, global, bytes))
        return;
    size_t page_bytes[DG_KV_GROUPS] = {[DG_KV_SLIDING] = sliding, [DG_KV_GLOBAL] = global};
    model m = {.n_move = 0};
    if (!dg_cuda_places_init(&m.places, page_bytes, bytes))
        case_fail("out of memory");
    m.slab = host_bytes(dg_cuda_places_bytes(&m.places) + 1);
    size_t used = 0;
    for (int turn = 0; turn < 6000; turn++) {
        int g = random_int(0, 1), n = m.places.n_page[g];
        /* for a while mostly one group, then the other */
        g = random_int(0, 9) < 7 ? turn / 500 % 2 : g;
        n = m.places.n_page[g];
        if (!n)
            continue;
        int page = random_int(0, n - 1);
        if (m.there[g][page]) {
            dg_cuda_place_give(&m.places, (dg_kv_group)g, page);
            m.there[g][page] = false;
            used -= page_bytes[g];
        } else if (used + page_bytes[g] <= bytes) {
            if (!dg_cuda_place_take(&m.places, (dg_kv_group)g, page, move, &m)) {
                case_fail("turn %d: no room with %zu of %zu bytes used", turn, used, bytes);
                break;
            }
            m.there[g][page] = true;
            used += page_bytes[g];
            memset(m.slab + dg_cuda_place_of(&m.places, (dg_kv_group)g, page), mark(g, page),
                   page_bytes[g]);
        }
        if (turn % 16 == 0)
            expect_pages(&m);
    }
    expect_pages(&m);
    if (must_move && !m.n_move)
        case_fail("nothing was moved");
    if (dg_cuda_place_take(&m.places, DG_KV_SLIDING, m.places.n_page[0], move, &m))
        case_fail("a page beyond the last");
    dg_cuda_places_clear(&m.places);
    case_end();
}

void check_cuda_places(void)
{
    check_places(10 * UNIT, UNIT, 200 * UNIT, true);
    check_places(UNIT, 7 * UNIT, 100 * UNIT, true);
    check_places(3 * UNIT, 2 * UNIT, 90 * UNIT, false); /* one small page a chunk */
    check_places(UNIT, UNIT, 50 * UNIT, false);
    check_places(5 * UNIT, 0, 60 * UNIT, false); /* no layers of the other kind */
    check_places(0, 5 * UNIT, 60 * UNIT, false);
    check_places(10 * UNIT, UNIT, 9 * UNIT, false); /* not one page of the larger kind */
}
