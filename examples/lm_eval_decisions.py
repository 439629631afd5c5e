"""Multiple-choice tasks of lm-eval (EleutherAI's harness) through decisions.

lm-eval scores a choice by the log-probability of its text behind the prompt, read from left to right. This model has no such
number: it fills a canvas. But what is asked is the same question that a decision answers, which of these fits here, and one pass
gives the probability of each. So the choices of a document become the options of one question:

    dgemma serve -m model.gguf &
    python examples/lm_eval_decisions.py --tasks arc_easy,hellaswag --limit 100

Figures are not comparable with those of left-to-right models to the last point: the model sees all choices when it decides. acc and
acc_norm are the same, since a label's probability does not depend on its text's length. Tasks that want the probability of one text
alone (lambada, perplexities) are refused.
"""
import argparse
import itertools
import json
import math
import urllib.request

QUESTION = "Which of these continues the text best?"


class Decisions:
    """POST /v1/decisions, with nothing but the standard library."""

    def __init__(self, base_url="http://127.0.0.1:8080", key="", samples=1, permute=1):
        self.url, self.key = base_url.rstrip("/") + "/v1/decisions", key
        self.options = {"samples": samples, "permute": permute}

    def probabilities(self, context, choices):
        """One probability for each choice; those that are equal share theirs."""
        different = list(dict.fromkeys(choices))
        body = {"model": "default", "input": context, **self.options, "questions": [
            {"type": "choice", "instructions": QUESTION, "choices": [{"value": c} for c in different]}]}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        if self.key:
            request.add_header("Authorization", "Bearer " + self.key)
        with urllib.request.urlopen(request, timeout=600) as answer:
            found = json.load(answer)["answers"][0]["probabilities"]
        p = {one["value"]: one["probability"] for one in found}
        return [p[c] / choices.count(c) for c in choices]


def score(client, pairs):
    """[(context, continuation), …] as lm-eval sends them, those of a document behind each other, to [(logprob, is_best), …]."""
    results = []
    for context, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        choices = [continuation.strip() for _, continuation in group]
        if len(choices) < 2:
            raise NotImplementedError("a text alone has no log-probability here: the model predicts the words of a canvas, "
                                      "never the next word of a prompt; tasks with two choices or more work")
        p = client.probabilities(context, choices)
        results += [(math.log(max(one, 1e-300)), one == max(p)) for one in p]
    return results


def make_model(client):
    """The model as lm-eval wants it."""
    from lm_eval.api.model import LM

    class DecisionsLM(LM):
        def loglikelihood(self, requests, disable_tqdm=False):
            return score(client, [r.args[:2] for r in requests])

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            raise NotImplementedError("a prompt has no log-probabilities here")

        def generate_until(self, requests, disable_tqdm=False):
            raise NotImplementedError("tasks that generate work with lm-eval's local-chat-completions on the same server")

    return DecisionsLM()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, help="names, with commas in between")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default="", help="of the server")
    parser.add_argument("--limit", type=int, help="documents of a task")
    parser.add_argument("--samples", type=int, default=1, help="reads with other noise, averaged")
    parser.add_argument("--permute", type=int, default=1, help="orders of the choices, averaged")
    parser.add_argument("--include", help="a folder with tasks of one's own")
    a = parser.parse_args()
    import lm_eval
    from lm_eval.tasks import TaskManager
    client = Decisions(a.base_url, a.key, a.samples, a.permute)
    results = lm_eval.simple_evaluate(model=make_model(client), tasks=a.tasks.split(","), limit=a.limit, bootstrap_iters=0,
                                      task_manager=TaskManager(include_path=a.include))
    print(lm_eval.utils.make_table(results))


if __name__ == "__main__":
    main()
