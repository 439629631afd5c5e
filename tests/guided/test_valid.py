#!/usr/bin/env python3
"""Answers under schemas are valid, whatever the model: SCHEMAS schemas made at random, ANSWERS answers each,
by the model with random weights and by the pocket model; a validator of its own looks at them.

    test_valid.py PROGRAM [SCHEMAS [ANSWERS]]      PROGRAM: build/release/valid_answers"""
import json
import math
import random
import re
import subprocess
import sys

MODELS = ["tests/fixtures/golden/sampler_finishes/model", "models/pocket/pocket.gguf"]


def value(rng, depth):
    kinds = ["string", "integer", "number", "boolean", "enum", "const", "pattern", "length", "range", "null"]
    if depth < 3:
        kinds += ["object", "object", "array", "any"]
    kind = rng.choice(kinds)
    if kind == "object":
        names = [rng.choice(["a", "name", "x y", "n\"q", "täg", "id"]) + str(i) for i in range(rng.randint(0, 4))]
        schema = {"type": "object", "properties": {n: value(rng, depth + 1) for n in names},
                  "additionalProperties": rng.choice([False, False, {"type": "integer"}])}
        schema["required"] = [n for n in names if rng.random() < 0.6]
        return schema
    if kind == "array":
        low = rng.randint(0, 2)
        return {"type": "array", "items": value(rng, depth + 1), "minItems": low, "maxItems": low + rng.randint(0, 3)}
    if kind == "any":
        return {"anyOf": [value(rng, depth + 1), value(rng, depth + 1)]}
    return {"enum": {"enum": ["red", 3, None, ["x"], {"k": True}]}, "const": {"const": {"a": [1, "ü\n"]}},
            "pattern": {"type": "string", "pattern": "^[a-c]{2,4}-\\d+$"},
            "length": {"type": "string", "minLength": rng.randint(0, 5), "maxLength": 9},
            "range": {"type": "integer", "minimum": rng.randint(-20, 0), "maximum": rng.randint(1, 3000)}
            }.get(kind, {"type": kind})


def fits(schema, v):
    if "anyOf" in schema:
        return any(fits(s, v) for s in schema["anyOf"])
    if "enum" in schema:
        return any(type(v) is type(e) and v == e for e in schema["enum"])
    if "const" in schema:
        return v == schema["const"]
    kind = schema["type"]
    if kind == "object":
        more = schema["additionalProperties"]
        return (isinstance(v, dict) and all(n in v for n in schema["required"])
                and all(fits(schema["properties"][n], w) if n in schema["properties"]
                        else more is not False and fits(more, w) for n, w in v.items()))
    if kind == "array":
        return (isinstance(v, list) and schema["minItems"] <= len(v) <= schema["maxItems"]
                and all(fits(schema["items"], w) for w in v))
    if kind == "string":
        return (isinstance(v, str) and schema.get("minLength", 0) <= len(v) <= schema.get("maxLength", 1 << 30)
                and re.search(schema.get("pattern", ""), v) is not None)
    if kind == "boolean":
        return isinstance(v, bool)
    if kind == "null":
        return v is None
    number = isinstance(v, (int,) if kind == "integer" else (int, float)) and not isinstance(v, bool)
    return number and schema.get("minimum", -math.inf) <= v <= schema.get("maximum", math.inf)


def main():
    n_schema = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    n_answer = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    rng = random.Random(1)
    schemas = [json.dumps(value(rng, 0)) for _ in range(n_schema)]
    wrong = 0
    for model in MODELS:
        out = subprocess.run([sys.argv[1], model, str(n_answer)], input="\n".join(schemas) + "\n", text=True,
                             capture_output=True, check=False)
        lines = out.stdout.split("\n")[:-1]  # a string may hold other characters that end lines
        if out.returncode or len(lines) != n_schema * n_answer:
            print(f"{model}: {len(lines)} of {n_schema * n_answer} answers\n{out.stderr}")
            return 1
        for line in lines:
            said = json.loads(line)
            try:
                ok = fits(said["schema"], json.loads(said["text"])) and said["tokens"] <= said["max_tokens"]
            except ValueError:
                ok = False
            if not ok or said["error"]:
                wrong += 1
                print(f"{model}: {line}")
        print(f"{model}: {len(lines)} answers under {n_schema} schemas, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
