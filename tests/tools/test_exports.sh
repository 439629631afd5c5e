#!/bin/sh
# The shared library shows dgemma_* and nothing else, and the library keeps its hands off the process:
# it never prints, exits or reads the environment.
. tests/support/shell_test.sh

if ! command -v nm >/dev/null 2>&1; then
    skip "exports" "there is no nm"
    finish
fi

so=$(ls "$BUILD"/libdgemma.so.*)
nm -D --defined-only "$so" | awk '{ print $3 }' >"$temp/exported"
sed -n 's/^DGEMMA_API.*\(dgemma_[a-z_]*\)(.*/\1/p' include/*.h | sort -u >"$temp/declared"

only_ours() { ! grep -v '^dgemma_' "$temp/exported"; }
all_declared() {
    missing=0
    while read -r name; do
        grep -qx "$name" "$temp/exported" || { echo "$name is declared, but not exported"; missing=1; }
    done <"$temp/declared"
    return $missing
}

# A sanitizer adds symbols of its own.
if [ -z "${SAN:-}" ]; then
    check "nothing but dgemma_* is exported" only_ours
else
    skip "nothing but dgemma_* is exported" "a sanitizer is linked in"
fi
check "every public function is exported" all_declared

quiet() {
    ! nm -u "$BUILD/libdgemma.a" | awk '{ print $2 }' |
        grep -xE '(v?f?printf|__v?f?printf_chk|puts|fputs|putchar|perror|std(out|err)|_?exit|abort|(secure_)?getenv)'
}
check "the library never prints, exits or reads the environment" quiet
finish
