#!/bin/sh
# File names of code and scripts are unique in the whole tree, so that a stack trace or a pattern for
# `git log` names one file. Prints those that are not.
#
#   check_names.sh [ROOT]
set -eu
cd "${1:-.}"

twice=$(find include src cli server tests tools -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.sh' -o -name '*.py' 2>/dev/null | sed 's|.*/||' | sort | uniq -d)
for name in $twice; do
    find include src cli server tests tools -name "$name" 2>/dev/null |
        sed 's/$/: this name is there more than once/'
done
[ -z "$twice" ]
