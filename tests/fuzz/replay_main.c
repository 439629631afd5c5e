/* Runs a fuzz target over its corpus without a fuzzing compiler: every file given, or in a folder
 * given, whole and cut short at up to CUTS places. A finding ends the process, or its sanitizer
 * does. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS = 64, PATH_BYTES = 4096 };

static int n_passed, n_failed;

/* The copy is exactly as long as the input, so that a read past its end is seen. */
static void run_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_file(const char *path, size_t size)
{
    uint8_t *data = malloc(size ? size : 1);
    FILE *f = fopen(path, "rb");
    if (!data || !f || fread(data, 1, size, f) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        n_failed++;
    } else {
        for (size_t cut = 0; cut < CUTS; cut++)
            run_copy(data, size / CUTS * cut + size % CUTS * cut / CUTS);
        run_copy(data, size);
        n_passed++;
    }
    if (f)
        fclose(f);
    free(data);
}

static void run_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        fprintf(stderr, "%s: not there\n", path);
        n_failed++;
        return;
    }
    if (!S_ISDIR(info.st_mode)) {
        run_file(path, (size_t)info.st_size);
        return;
    }
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char name[PATH_BYTES];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (stat(name, &info) == 0 && S_ISREG(info.st_mode))
            run_file(name, (size_t)info.st_size);
    }
    if (dir)
        closedir(dir);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed || !n_passed ? EXIT_FAILURE : EXIT_SUCCESS;
}
