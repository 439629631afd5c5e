#!/bin/sh
# tools/check_names.sh: the tree is clean, and a name used twice is found.
. tests/support/shell_test.sh

check "file names are unique" sh tools/check_names.sh

mkdir -p "$temp/src/base" "$temp/tests/unit" "$temp/tools"
: >"$temp/src/base/buf.c"
: >"$temp/tests/unit/test_buf.c"
check "different names pass" sh tools/check_names.sh "$temp"
: >"$temp/tests/unit/buf.c"
check "the same name twice" fails_saying "src/base/buf.c: " sh tools/check_names.sh "$temp"

# Where there is a GPU, "auto" is it: tests/support/cpu_engine.h says why unit tests do not want it.
devices_named() { ! grep -rn 'dgemma_engine_defaults()' tests/unit; }
check "unit tests name their device" devices_named
finish
