#!/usr/bin/env python3
"""Prints cli/cell_table.h: which characters take no cell of a terminal, which take two, which are right-to-left.

    tools/make_cell_table.py > cli/cell_table.h
"""
import sys
import unicodedata


def kind_zero(c):
    if c == 0xAD:  # a soft hyphen is shown as a hyphen
        return False
    if 0x1160 <= c <= 0x11FF or 0xD7B0 <= c <= 0xD7FB:  # vowels and finals join the syllable before them
        return True
    return unicodedata.category(chr(c)) in ("Mn", "Me", "Cf")


# What is not assigned yet has its width from its block; Python's own answer for it is not to be trusted.
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFD), (0x30000, 0x3FFFD))


def kind_wide(c):
    if unicodedata.category(chr(c)) == "Cn":
        return any(first <= c <= last for first, last in IDEOGRAPHS)
    return unicodedata.east_asian_width(chr(c)) in ("W", "F") and not kind_zero(c)


def kind_rtl(c):
    return unicodedata.bidirectional(chr(c)) in ("R", "AL", "AN")


def ranges(kind):
    """Ranges of the kind; what is not assigned between two of them is swallowed, to keep the table short."""
    out = []
    gap = True
    for c in range(0x80, 0x110000):
        if 0xD800 <= c <= 0xDFFF:
            gap = False
        elif kind(c):
            if out and gap:
                out[-1][1] = c
            else:
                out.append([c, c])
            gap = True
        elif unicodedata.category(chr(c)) != "Cn":
            gap = False
    return out


def main():
    print("/* Made by tools/make_cell_table.py from Unicode %s. */" % unicodedata.unidata_version)
    print("#ifndef DG_CLI_CELL_TABLE_H\n#define DG_CLI_CELL_TABLE_H\n\n#include <stdint.h>\n")
    print("typedef struct cell_range {\n    uint32_t first, last;\n} cell_range;\n")
    for name, kind in (("zero", kind_zero), ("wide", kind_wide), ("rtl", kind_rtl)):
        print("static const cell_range cells_%s[] = {" % name)
        line = "   "
        for first, last in ranges(kind):
            item = " {0x%X, 0x%X}," % (first, last)
            if len(line) + len(item) > 100:
                print(line)
                line = "   "
            line += item
        print(line + "\n};\n")
    print("#endif")


if __name__ == "__main__":
    sys.exit(main())
