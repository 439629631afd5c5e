#!/bin/sh
# A multiple-choice task of EleutherAI's harness through examples/lm_eval_decisions.py; HARNESS=1 installs the harness, which
# takes minutes (`make test-lm-eval`). From the environment: DGEMMA, SAN, HARNESS.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

venv=build/harness
if [ "${HARNESS:-}" != 1 ]; then
    skip "lm-eval's tasks as decisions" "HARNESS=1 installs the harness"
    finish
fi
need_client lm_eval '>=0.4.9,<0.5'
exec "$venv/bin/python" tests/server/lm_eval_client.py
