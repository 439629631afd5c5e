#!/bin/sh
# tools/check_lengths.sh: the tree is clean, and a file that is too long is found.
. tests/support/shell_test.sh

check "no file is too long" sh tools/check_lengths.sh

mkdir -p "$temp/include" "$temp/src/base" "$temp/ui" "$temp/tests/unit"
lines() { seq "$1" >"$temp/$2"; }
lines 600 src/base/buf.c
lines 800 tests/unit/test_buf.c
lines 601 include/dgemma.h
check "the longest that may be" sh tools/check_lengths.sh "$temp"
lines 801 tests/unit/test_buf.c
check "a test that is longer" fails_saying "tests/unit/test_buf.c: 801 lines, at most 800" sh tools/check_lengths.sh "$temp"
lines 1 tests/unit/test_buf.c
for file in include/dgemma_tools.h src/base/buf.h src/base/buf.cu src/base/buf.cuh ui/app.js; do
    lines 601 "$file"
    check "$file that is longer" fails_saying "$file: 601 lines, at most 600" sh tools/check_lengths.sh "$temp"
    rm "$temp/$file"
done
finish
