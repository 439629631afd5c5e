"""Writes src/tensor/grids.c from a list of the grids of GGUF's IQ types, as the gguf package of PyPI has them:

    python3 tools/make_grids.py GRIDS.json > src/tensor/grids.c

GRIDS.json: {"grids": {"iq2xxs": {"row_hex": ["0808…", …]}, …}}, a byte for each value, in order."""
import json
import sys

GRIDS = [  # name there, name here, bits for a value, the values
    ("iq1s", "iq1", 2, (-1, 0, 1)),
    ("iq2xxs", "iq2_xxs", 2, (8, 25, 43)),
    ("iq2xs", "iq2_xs", 2, (8, 25, 43)),
    ("iq2s", "iq2_s", 2, (8, 25, 43)),
    ("iq3xxs", "iq3_xxs", 4, (4, 12, 20, 28, 36, 44, 52, 62)),
    ("iq3s", "iq3_s", 4, (1, 3, 5, 7, 9, 11, 13, 15)),
]


def packed(row, bits, values):
    return sum(values.index(b - 256 if b > 127 else b) << bits * i for i, b in enumerate(bytes.fromhex(row)))


def main():
    grids = json.load(open(sys.argv[1]))["grids"]
    print("/* Made by tools/make_grids.py; grids.h says what the numbers mean. */")
    print('#include "tensor/grids.h"')
    for theirs, name, bits, values in GRIDS:
        rows = [packed(r, bits, values) for r in grids[theirs]["row_hex"]]
        print(f"\n/* clang-format off */\nconst uint16_t dg_grid_{name}[{len(rows)}] = {{")
        for i in range(0, len(rows), 12):
            print("    " + ", ".join(f"0x{r:04X}" for r in rows[i:i + 12]) + ",")
        print("};\n/* clang-format on */")


main()
