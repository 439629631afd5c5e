#!/bin/sh
# Every header stands alone: public ones in C and C++ without a warning, the others in C.
. tests/support/shell_test.sh

for header in include/*.h; do
    for std in c99 c17; do
        check "$header in $std" $CC -std=$std -Wall -Wextra -Wpedantic -Werror -Iinclude \
            -fsyntax-only -x c "$header"
    done
    if command -v c++ >/dev/null 2>&1; then
        check "$header in C++" c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude \
            -fsyntax-only -x c++ "$header"
    else
        skip "$header in C++" "there is no C++ compiler"
    fi
done

# Left out: headers with intrinsics, which need their instruction set, and bodies, which are code to be
# included with something defined around them. The build compiles both. Where there is no CUDA, its header is the
# one that stands in for it.
for header in $(find src -name '*.h' ! -name '*_body.h' ! -path 'src/cpu/arm/*' ! -path 'src/cpu/x86/*' |
    sort); do
    # shellcheck disable=SC2046 # flags are words
    check "$header" $CC -std=c17 -D_GNU_SOURCE -Wall -Wextra -Iinclude -Isrc -idirafter tests/cuda/emulated \
        $(pkg-config --cflags jansson) -fsyntax-only -x c "$header"
done
finish
