"""Writes what the model answers now into tests/unit/test_known_answers.c: run it when pocket.gguf was replaced, never to make a
failing test pass after a change of the engine.

    python3 known_answers.py [../../build/release/unit_tests]"""
import os
import re
import subprocess
import sys
import textwrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SOURCE = os.path.join(ROOT, "tests", "unit", "test_known_answers.c")


def failures(program):
    out = subprocess.run([os.path.abspath(program), "known_answers"], cwd=ROOT, capture_output=True, text=True)
    return out.stdout + out.stderr


def quoted(text):
    """As a string of C, in lines of the width of that file."""
    lines = textwrap.wrap(text, 90, drop_whitespace=False, break_on_hyphens=False)
    return "\n     ".join('"%s"' % x.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for x in lines)


def main(program=os.path.join(ROOT, "build", "release", "unit_tests")):
    said = failures(program)
    with open(SOURCE, encoding="utf-8") as f:
        code = f.read()
    changed = 0
    for profile, want in re.findall(r"pocket\.gguf, (float|portable): (0x[0-9A-F]{16})", said):
        exact = "true" if profile == "float" else "false"
        code, n = re.subn(r"(\{NULL, pocket, DG_BF16, false, %s, UINT64_C\()0x[0-9A-F]{16}" % exact, r"\g<1>" + want, code)
        changed += n
    for prompt, seed, profile, text, want in re.findall(r'"([^"\n]+)", seed (\d+), (float|integer):\n(.*?)\n(0x[0-9A-F]{16})', said, re.S):
        exact = "true" if profile == "float" else "false"
        name = "story" if "story" in prompt else re.escape('"%s"' % prompt)
        entry = re.compile(r'(\{pocket, %s, false, %s, (?:true|false), %s,[^(]*UINT64_C\()0x[0-9A-F]{16}\),\s*"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*\}' % (name, exact, seed))
        code, n = entry.subn(lambda m: m[1] + want + "),\n     " + quoted(text) + "}", code)
        changed += n
    with open(SOURCE, "w", encoding="utf-8") as f:
        f.write(code)
    print(changed, "entries changed; format, build and run the suite again")


if __name__ == "__main__":
    main(*sys.argv[1:])
