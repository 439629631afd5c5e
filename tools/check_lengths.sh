#!/bin/sh
# A file does one thing and can be read in one go: code has at most 600 lines, a test at most 800. Prints those that have more.
#
#   check_lengths.sh [ROOT]
set -eu
cd "${1:-.}"

# longer LIMIT FOLDER...: what is there in C, C++, CUDA C and JavaScript and has more lines.
longer() {
    limit=$1
    shift
    find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.js' 2>/dev/null | sort |
        while read -r file; do
            lines=$(wc -l <"$file")
            [ "$lines" -le "$limit" ] || echo "$file: $lines lines, at most $limit"
        done
}

# include/dgemma.h may be longer: users of the library include one header.
long=$(longer 600 include src server cli ui | grep -v '^include/dgemma\.h:' || true; longer 800 tests)
[ -z "$long" ] || {
    printf '%s\n' "$long"
    exit 1
}
