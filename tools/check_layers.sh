#!/bin/sh
# Holds every #include under src/, cli/ and server/ to the tables in docs/architecture.md: which folder
# may include which, and which library has which room. Prints each line that breaks a rule.
#
#   check_layers.sh [ROOT]
set -eu
cd "${1:-.}"

files=$(find src cli server -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null | sort)

# shellcheck disable=SC2086 # file names in this tree have no blanks
awk '
# ---- the tables: cells between bars, names in backticks ----

function names(cell, out,    n, i, part) {
    n = split(cell, part, "`")
    out[0] = 0
    for (i = 2; i <= n; i += 2)
        out[++out[0]] = part[i]
}

FILENAME == "docs/architecture.md" {
    if (!/^\|/) { table = ""; next }
    split($0, cell, "|")
    if (cell[2] ~ /^ *folder *$/) { table = "folder"; next }
    if (cell[2] ~ /^ *library *$/) { table = "library"; next }
    if (table == "folder") {
        names(cell[2], folders); names(cell[3], allowed)
        for (f = 1; f <= folders[0]; f++) {
            n_rule++
            rule[folders[f]] = " "
            for (a = 1; a <= allowed[0]; a++)
                rule[folders[f]] = rule[folders[f]] allowed[a] " "
        }
    }
    if (table == "library") {
        names(cell[3], headers); names(cell[4], rooms)
        for (h = 1; h <= headers[0]; h++) {
            n_header++
            room[headers[h]] = cell[4] ~ /everywhere/ ? "everywhere" : " "
            for (r = 1; r <= rooms[0]; r++)
                room[headers[h]] = room[headers[h]] rooms[r] " "
        }
    }
    next
}

# ---- the files ----

function complain(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why
    bad = 1
}

function inside(path, folder) {
    return path == folder || index(path, folder "/") == 1 || index(path, folder ".") == 1
}

FNR == 1 {
    mine = ""
    for (f in rule)
        if (inside(FILENAME, f) && length(f) > length(mine))
            mine = f
    if (mine == "")
        complain("the table of docs/architecture.md has no rule for this file")
    own = mine
    sub(/^src\//, "", own)
    here = FILENAME
    sub(/[^\/]*$/, "", here)
}

/^[ \t]*#[ \t]*include/ && mine != "" {
    if (match($0, /<[^>]*>/)) {
        header = substr($0, RSTART + 1, RLENGTH - 2)
        if (!(header in room)) {
            complain("<" header "> belongs to no library in docs/architecture.md")
            next
        }
        if (room[header] == "everywhere")
            next
        n = split(room[header], list, " ")
        for (i = 1; i <= n; i++)
            if (inside(FILENAME, list[i]))
                next
        complain("<" header "> has its room in" room[header] "only")
    } else if (match($0, /"[^"]*"/)) {
        header = substr($0, RSTART + 1, RLENGTH - 2)
        slash = index(header, "/")
        module = slash ? substr(header, 1, slash - 1) : header
        if (module == ".." || module == "." || module == "src" || module == "include")
            complain("\"" header "\" is not written from the source root")
        else if (!slash && mine !~ /^src/ && (getline line < (here header)) >= 0)
            close(here header) # a program may have headers of its own beside its files
        else if (module != own && index(rule[mine], " " module " ") == 0)
            complain(mine " may not include \"" header "\"")
    }
}

END {
    if (!n_rule || !n_header) {
        print "docs/architecture.md: the tables of folders and libraries were not found"
        bad = 1
    }
    exit bad
}
' docs/architecture.md $files

# Where one reads after the other: a source with its header is one thing, and no two of a folder include
# each other, over however many between them.
for folder in server src/engine; do
    for file in "$folder"/*.[ch]; do
        [ -f "$file" ] || continue
        own=${file##*/}
        sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\(.*\)\.h".*/\1/p' "$file" | while read -r header; do
            other=${header##*/}
            if [ -f "$folder/$other.h" ] && [ "$other" != "${own%.*}" ]; then
                echo "${own%.*} $other"
            fi
        done
    done | sort -u | tsort 2>&1 >/dev/null | sed "s|^tsort: -: .*|$folder: these include each other in a circle:|; s|^tsort: |    |"
done | {
    if circles=$(grep .); then
        printf '%s\n' "$circles"
        exit 1
    fi
}
