#!/bin/sh
# Puts trained weights in place of the model, and makes anew all that hangs on it:
#     models/pocket/replace.sh WEIGHTS_DIR TOKENIZER      from the root of the tree; PYTHON: one with the packages that export.py names
set -eu
python=${PYTHON:-python3} pocket=models/pocket
"$python" $pocket/export.py "$1" weights "$2" $pocket
[ "$2" -ef $pocket/tokenizer.json ] || cp "$2" $pocket/tokenizer.json
"$python" $pocket/make_eval.py $pocket/tokenizer.json $pocket/eval
make build/release/dgemma build/release/pocket_eval build/release/unit_tests
build/release/dgemma verify --record --cpu-flags ref $pocket/pocket.gguf >$pocket/pocket.reference.json.new
mv $pocket/pocket.reference.json.new $pocket/pocket.reference.json
build/release/dgemma verify
"$python" $pocket/make_golden.py
"$python" $pocket/known_answers.py
make format build/release/unit_tests
build/release/unit_tests known_answers
"$python" $pocket/compare_transformers.py --prompts 200
