/* A folder for the files of one test. */
#ifndef DG_TESTS_TEMP_DIR_H
#define DG_TESTS_TEMP_DIR_H

#include <stdbool.h>
#include <stddef.h>

enum { DG_TEST_PATH = 512 };

/* Makes a new folder under $TMPDIR (else the system's); its path goes into out. */
bool dg_test_temp_make(char out[DG_TEST_PATH]);
void dg_test_temp_remove(const char *dir); /* with everything in it */

/* dir/name into out; returns out. */
char *dg_test_path(char out[DG_TEST_PATH], const char *dir, const char *name);

/* One folder for the test that runs, made and removed by Check's fixtures of a case. */
extern char dg_test_root[DG_TEST_PATH];
void dg_test_root_make(void);
void dg_test_root_remove(void);
const char *dg_test_in_root(const char *name); /* until the next call */

bool dg_test_write_file(const char *dir, const char *name, const void *data, size_t size);

#endif
