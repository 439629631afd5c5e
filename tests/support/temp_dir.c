#include "support/temp_dir.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

bool dg_test_temp_make(char out[DG_TEST_PATH])
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(out, DG_TEST_PATH, "%s/dgemma-test-XXXXXX", base && *base ? base : P_tmpdir);
    return n > 0 && n < DG_TEST_PATH && mkdtemp(out);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void dg_test_temp_remove(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char *dg_test_path(char out[DG_TEST_PATH], const char *dir, const char *name)
{
    int n = snprintf(out, DG_TEST_PATH, "%s/%s", dir, name);
    if (n < 0 || n >= DG_TEST_PATH)
        abort();
    return out;
}

char dg_test_root[DG_TEST_PATH];

void dg_test_root_make(void)
{
    if (!dg_test_temp_make(dg_test_root))
        abort();
}

void dg_test_root_remove(void)
{
    dg_test_temp_remove(dg_test_root);
}

const char *dg_test_in_root(const char *name)
{
    static char path[DG_TEST_PATH];
    return dg_test_path(path, dg_test_root, name);
}

bool dg_test_write_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[DG_TEST_PATH];
    FILE *f = fopen(dg_test_path(path, dir, name), "wb");
    if (!f)
        return false;
    bool ok = fwrite(data, 1, size, f) == size;
    return fclose(f) == 0 && ok;
}
