/* Check writes down the place of every assertion that holds, so that a crash can be told from where
 * it was seen last. In tests that assert a million numbers this is most of the time, so each place
 * is written down once. Nobody calls this file: the linker puts it in the way (-Wl,--wrap). */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { N_PLACE = 1 << 14 };

void __wrap__mark_point(const char *file, int line);
void __real__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line)
{
    /* Two places in one cell: the later is not written down, and a crash behind it names the one
     * before. */
    static atomic_bool known[N_PLACE];
    atomic_bool *cell = &known[((uintptr_t)file * 31 + (unsigned)line) % N_PLACE];
    if (!atomic_load_explicit(cell, memory_order_relaxed)) {
        atomic_store_explicit(cell, true, memory_order_relaxed);
        __real__mark_point(file, line);
    }
}
