#!/bin/sh
# tools/check_layers.sh: the tree is clean, and each kind of offence is found and named.
. tests/support/shell_test.sh

check "the tree keeps its layers" sh tools/check_layers.sh

tree=$temp/tree
fresh_tree() {
    rm -rf "$tree"
    mkdir "$tree"
    cp -r src cli include "$tree"
    mkdir "$tree/docs"
    cp docs/architecture.md "$tree/docs"
}

# offence NAME FILE INCLUDE: with this line in this file, the check fails and names the file and line.
offence() {
    fresh_tree
    mkdir -p "$tree/${2%/*}"
    printf '#include %s\n' "$3" >"$tree/$2"
    check "$1" fails_saying "$2:1: " sh tools/check_layers.sh "$tree"
}

offence "base includes a layer above" src/base/extra.c '"tensor/tensor.h"'
offence "model includes a backend" src/model/extra.c '"cpu/kernels.h"'
offence "diffusion includes tensors" src/diffusion/extra.h '"tensor/tensor.h"'
offence "the program looks inside" cli/cmd_extra.c '"engine/engine.h"'
offence "a subfolder is under its folder's rule" src/cpu/arm/extra.c '"model/model.h"'
offence "jansson out of its rooms" src/engine/extra.c '<jansson.h>'
offence "jansson beside model/config" src/model/extra.c '<jansson.h>'
offence "a library that nobody chose" src/text/extra.c '<curl/curl.h>'
offence "a path that climbs" src/text/extra.c '"../model/model.h"'
offence "a path from the repository root" src/text/extra.c '"src/base/buf.h"'
offence "a public header where it has no place" src/tensor/extra.c '"dgemma.h"'
offence "blanks do not hide it" src/base/extra.c ' "tensor/tensor.h"'
offence "a folder without a rule" src/novel/extra.c '"base/buf.h"'

fresh_tree
printf '#include "base/buf.h"\n#include <jansson.h>\n' >"$tree/src/model/config_extra.c"
check "a name that only begins like a room" fails_saying "src/model/config_extra.c:2: " \
    sh tools/check_layers.sh "$tree"

fresh_tree
printf '#include "engine/engine.h"\n' >>"$tree/src/engine/scheduler.c"
check "two that include each other" fails_saying "src/engine: these include each other" \
    sh tools/check_layers.sh "$tree"
fresh_tree
printf '#include "engine/engine.h"\n' >>"$tree/src/engine/request.h"
check "a circle over several" fails_saying "scheduler" sh tools/check_layers.sh "$tree"

fresh_tree
echo "no tables here" >"$tree/docs/architecture.md"
check "a page without tables is no permission" fails_saying "not found" \
    sh tools/check_layers.sh "$tree"
finish
