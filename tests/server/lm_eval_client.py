"""examples/lm_eval_decisions.py with lm-eval itself, as a person runs it: a task of this file's own, on documents that the pocket
model answers, and what it counts is what the same decisions say when they are asked for one by one."""
import json
import os
import re
import subprocess
import sys
import tempfile

from serving import HAS_POCKET, MODEL, Server, check, finish, skip

CAPITALS = {"France": "Paris", "Italy": "Rome", "Norway": "Oslo", "Japan": "Tokyo", "Greece": "Athens", "Egypt": "Cairo", "Peru": "Lima",
            "Spain": "Madrid", "Austria": "Vienna", "Poland": "Warsaw", "Kenya": "Nairobi", "Cuba": "Havana"}
TASK = """task: {task}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
"""
CHOICES = """doc_to_choice: "{{choices}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def documents():
    names = sorted(set(CAPITALS.values()))
    for i, (country, city) in enumerate(CAPITALS.items()):
        choices = sorted({city, *(names[(i * 5 + k * 3) % len(names)] for k in range(3))})
        yield {"question": f"What is the capital of {country}?", "choices": choices, "answer": choices.index(city)}


def by_hand(s, doc):
    """Whether the decision itself is right."""
    sys.path.insert(0, "examples")
    from lm_eval_decisions import QUESTION
    status, said = s.json("POST", "/v1/decisions", {"model": "default", "input": doc["question"], "questions": [
        {"type": "choice", "instructions": QUESTION, "choices": [{"value": c} for c in doc["choices"]]}]})
    return status == 200 and said["answers"][0]["choice"] == doc["choices"][doc["answer"]]


def harness(s, folder, task):
    env = {**os.environ, "HF_HOME": folder, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return subprocess.run([sys.executable, "examples/lm_eval_decisions.py", "--tasks", task, "--include", folder, "--base-url",
                           f"http://127.0.0.1:{s.port}"], capture_output=True, text=True, env=env, timeout=600, check=False)


def main():
    if not HAS_POCKET:
        skip("lm-eval's tasks as decisions", "the model that ships with the source is not there")
        finish()
    docs = list(documents())
    with tempfile.TemporaryDirectory() as folder, Server("-q", model=MODEL) as s:
        data = os.path.join(folder, "capitals.jsonl")
        with open(data, "w") as f:
            f.writelines(json.dumps(d) + "\n" for d in docs)
        for task, kind, more in (("capitals", "multiple_choice", CHOICES), ("written", "generate_until", "")):
            with open(os.path.join(folder, task + ".yaml"), "w") as f:
                f.write(TASK.format(task=task, data=data, kind=kind) + more)
        told = harness(s, folder, "capitals")
        found = dict(re.findall(r"\|(acc|acc_norm)\s*\|[^|]*\|\s*([0-9.]+)\s*\|", told.stdout))
        share = sum(by_hand(s, d) for d in docs) / len(docs)
        print(f"lm-eval says {found}, the decisions {share:.4f}")
        check("the harness counts what the decisions say", told.returncode == 0
              and all(abs(float(found.get(k, -1)) - share) < 1e-3 for k in ("acc", "acc_norm")), told.stdout[-500:] + told.stderr[-1500:])
        told = harness(s, folder, "written")
        check("a task that writes is told where it belongs", told.returncode != 0 and "local-chat-completions" in told.stderr, told.stderr[-500:])
    finish()


main()
