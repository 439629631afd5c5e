#!/usr/bin/env python3
"""Public schemas through `dgemma constrain`, which must never allow what is invalid:

    public_suites.py DGEMMA --suite JSON-Schema-Test-Suite/tests/draft2020-12
    public_suites.py DGEMMA --bench jsonschemabench/maskbench/data [--limit 500]

A schema is compiled or refused, and a refusal names keyword and pointer. Of one that is compiled, instances that the suite calls
invalid must not be accepted, and texts drawn at random must be valid to Python's `jsonschema`, where it is installed. Instances
that are valid and not accepted are counted, and listed with --verbose: the language is narrower than the schema (docs/constraints.md).
The suites are read where they are; nothing of them is in this repository."""
import argparse
import itertools
import json
import pathlib
import random
import subprocess
import sys

DRAWN = 5
FORMATS = ("date-time", "date", "time", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")  # others are notes
NOTES = {"refRemote.json", "vocabulary.json", "dynamicRef.json"}  # of other documents, or of other dialects


def constrain(program, schema, *more, text=""):
    return subprocess.run([program, "constrain", "--json-schema", schema, *more], input=text, text=True, capture_output=True, check=False)


def orders(value, most=120):
    """The value with the members of its objects in every order, up to so many."""
    if isinstance(value, dict) and value:
        parts = [[(k, v) for v in orders(w, 4)] for k, w in value.items()]
        found = (dict(p) for members in itertools.product(*parts) for p in itertools.permutations(members))
        return list(itertools.islice(found, most))
    if isinstance(value, list) and value:
        return [list(x) for x in itertools.islice(itertools.product(*[orders(w, 6) for w in value]), most)]
    return [value]


class Tally:
    def __init__(self, program, verbose):
        self.program, self.verbose = program, verbose
        self.compiled = self.refused = self.valid = self.missed = self.invalid = self.drawn = 0
        self.wrong = []

    def fault(self, what, schema, detail):
        self.wrong.append(what)
        print(f"WRONG: {what}: {json.dumps(schema)[:400]}: {detail}")

    def check(self, schema, tests, name):
        text = json.dumps(schema, ensure_ascii=False)
        drawn = constrain(self.program, text, "--random", str(DRAWN), "--length", "60")
        if drawn.returncode == 2:
            self.refused += 1
            if " at #" not in drawn.stderr and "nothing satisfies" not in drawn.stderr and "bytes" not in drawn.stderr:
                self.fault("a refusal without its place", schema, drawn.stderr.strip()[:300])
            if "nothing satisfies" in drawn.stderr and any(t["valid"] for t in tests):
                self.fault("something satisfies it", schema, [t["data"] for t in tests if t["valid"]])
            return
        if drawn.returncode or drawn.stderr:
            self.fault("no texts", schema, (drawn.returncode, drawn.stderr[:300]))
            return
        self.compiled += 1
        self.validate(schema, drawn.stdout.split("\n"), name)
        for test in tests:
            lines = [json.dumps(x, ensure_ascii=False) for x in orders(test["data"])]
            said = constrain(self.program, text, "--lines", "--json", text="\n".join(lines) + "\n").stdout.splitlines()
            accepted = any(json.loads(x)["verdict"] == "accepted" for x in said)
            self.valid += test["valid"]
            self.invalid += not test["valid"]
            if accepted and not test["valid"] and self.errors_of(schema, test["data"], name) != []:
                self.fault(f"{name}: accepted, though invalid", schema, json.dumps(test["data"]))
            if not accepted and test["valid"]:
                self.missed += 1
                if self.verbose:
                    print(f"narrower: {name}: {text[:300]}: {lines[0][:200]}")

    def errors_of(self, schema, value, name):
        """As jsonschema says, with the formats that are more than notes; None where it cannot tell."""
        try:
            import jsonschema
        except ImportError:
            return None
        said = isinstance(schema, dict) and "draft-0" in str(schema.get("$schema"))
        kind = jsonschema.validators.validator_for(schema) if said else jsonschema.Draft202012Validator
        checker = jsonschema.FormatChecker(())
        checker.checkers = {name: how for name, how in jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers.items() if name in FORMATS}
        try:
            return [e.message[:200] for e in kind(schema, format_checker=checker).iter_errors(value)]
        except Exception as e:  # noqa: BLE001 - schemas that this validator does not take
            if self.verbose:
                print(f"not validated: {name}: {e!r}"[:300])
            return None

    def validate(self, schema, lines, name):
        text = ""
        for line in lines[:-1]:  # a text has lines of its own
            text += line
            try:
                value = json.loads(text)
            except ValueError:
                text += "\n"
                continue
            text = ""
            self.drawn += 1
            errors = self.errors_of(schema, value, name)
            if errors:
                self.fault(f"{name}: drawn, though invalid", schema, (json.dumps(value)[:300], errors[:2]))
        if text.strip():
            self.fault(f"{name}: drawn, and no JSON", schema, text[:300])

    def report(self, what):
        print(f"{what}: {self.compiled} schemas compiled, {self.refused} refused; {self.invalid} invalid instances, {self.drawn} texts drawn, "
              f"{len(self.wrong)} wrong; {self.valid - self.missed} of {self.valid} valid instances accepted")
        return not self.wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--suite", type=pathlib.Path, help="a folder of JSON-Schema-Test-Suite")
    parser.add_argument("--bench", type=pathlib.Path, help="a folder of jsonschemabench's, with schemas and instances")
    parser.add_argument("--limit", type=int, default=500, help="schemas of the bench, chosen at random")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    ok = True
    if a.suite:
        tally = Tally(a.program, a.verbose)
        for path in sorted(a.suite.glob("*.json")):
            if path.name not in NOTES:
                for group in json.loads(path.read_text()):
                    tally.check(group["schema"], group["tests"], f"{path.name}, {group['description']}")
        ok &= tally.report("suite")
    if a.bench:
        tally = Tally(a.program, a.verbose)
        paths = sorted(a.bench.rglob("*.json"))
        for path in random.Random(1).sample(paths, min(a.limit, len(paths))):
            one = json.loads(path.read_text())
            if isinstance(one, dict) and "tests" in one:
                tally.check(one["schema"], one["tests"], path.name)
            else:
                tally.check(one, [], path.name)
        ok &= tally.report("bench")
    return not ok


if __name__ == "__main__":
    sys.exit(main())
