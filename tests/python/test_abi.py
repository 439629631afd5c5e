"""The structures as Python declares them are those of the header, and the package has the library's version."""
import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import dgemma
import pytest
from dgemma import _abi, _library

HEADER = Path("include/dgemma.h")


def test_version():
    assert f'#define DGEMMA_VERSION "{dgemma.__version__}"' in HEADER.read_text()


def test_structures_have_the_header_s_layout(tmp_path):
    compiler = (os.environ.get("CC") or "cc").split()
    if not shutil.which(compiler[-1]):
        pytest.skip("there is no C compiler")
    lines = ["#include <stdio.h>", '#include "dgemma.h"', "int main(void) {"]
    want = []
    for name, structure in _abi.STRUCTURES.items():
        for field, _ in structure._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            place = getattr(structure, field)
            want.append(f"{name}.{field} {place.offset} {place.size}")
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        want.append(f"{name} {ctypes.sizeof(structure)}")
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run([*compiler, "-Iinclude", str(source), "-o", str(tmp_path / "layout")], check=True)
    got = subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout
    assert got.splitlines() == want


def test_numbers_of_enumerations():
    text = HEADER.read_text()
    places = [text.index(f"DGEMMA_EVENT_{n}") for n in ("PROMPT", "DRAFT", "BLOCK", "THINKING", "TEXT", "TOOL_CALL", "READ", "END")]
    assert places == sorted(places)
    for code in dgemma.errors._CLASSES:
        assert f"= {code}" in text
    ends = [text.index(f"DGEMMA_END_{n.upper()}") for n in _abi.END_NAMES]
    assert ends == sorted(ends)


def test_every_function_that_is_called_is_declared():
    text = HEADER.read_text()
    assert all(f"{name}(" in text for name in _library._SIGNATURES)
