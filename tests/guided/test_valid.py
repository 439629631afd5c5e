#!/usr/bin/env python3
"""Answers under schemas are valid, whatever the model: SCHEMAS schemas made at random, ANSWERS answers each,
by the model with random weights and by the pocket model; a validator of its own looks at them. Canvases of 16 to 64,
from the tokens of the shortest answer to 400, thoughts, settled text, one to sixteen at a time.

    test_valid.py PROGRAM [SCHEMAS [ANSWERS [FIRST]]]      PROGRAM: build/release/valid_answers; FIRST: the schema to begin with"""
import json
import math
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

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


def wrong_of(line):
    said = json.loads(line)
    try:
        ok = fits(said["schema"], json.loads(said["text"])) and said["tokens"] <= said["max_tokens"]
    except ValueError:
        ok = False
    return not ok or bool(said["error"])


def main():
    n_schema, n_answer, first = [int(x) for x in sys.argv[2:]] + [50, 20, 0][len(sys.argv) - 2:]
    rng = random.Random(1)
    schemas = [json.dumps(value(rng, 0)) for _ in range(first + n_schema)][first:]
    asked = "\n".join(schemas) + "\n"
    programs = [subprocess.Popen([sys.argv[1], model, str(n_answer), str(first)], text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for model in MODELS]
    with ThreadPoolExecutor() as both:
        told = list(both.map(lambda p: p.communicate(asked), programs))
    failed = False
    for model, program, (out, err) in zip(MODELS, programs, told):
        lines = out.split("\n")[:-1]  # a string may hold other characters that end lines
        wrong = [x for x in lines if wrong_of(x)]
        whole = not program.returncode and len(lines) == n_schema * n_answer
        print("".join(f"{x}\n" for x in wrong) + ("" if whole else f"of {n_schema * n_answer} answers:\n{err}")
              + f"{model}: {len(lines)} answers under schemas {first} to {first + n_schema - 1}, {len(wrong)} wrong", flush=True)
        failed = failed or wrong or not whole
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
