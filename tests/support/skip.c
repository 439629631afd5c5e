#include "support/skip.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Tests run in child processes: the count is shared memory. */
static atomic_int *count;

void dg_test_skip_init(void)
{
    void *p = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(EXIT_FAILURE);
    }
    count = p;
}

int dg_test_skip_count(void)
{
    return atomic_load(count);
}

void dg_test_skip(const char *why)
{
    printf("skipped: %s\n", why);
    fflush(stdout);
    atomic_fetch_add(count, 1);
}
