"""For engines that hand rows around, Ray Data above all: a model that maps batches of them to answers.

    ds = ray.data.read_json("questions.jsonl")                      # rows with "id" and "messages", or "prompt"
    ds = ds.map_batches(dgemma.ChatMapper, fn_constructor_kwargs={"model": "model.gguf", "max_tokens": 200},
                        compute=ray.data.ActorPoolStrategy(size=4), batch_size=32)
    ds.write_json("answers")

Ray need not be there; the class is called with columns and returns columns.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any, Callable, Mapping

from ._options import OPTIONS
from .errors import Busy, Error, OutOfMemory
from .model import Model

_AHEAD = 256  # rows that the model is asked at a time
_PATIENCE = 600.0  # seconds that a row waits for a model that others keep busy
_PAUSE = 0.05


def seed_of(name: str) -> int:
    """The seed that `dgemma batch` gives a request without one: FNV-1a of its name, 32 bits."""
    h = 2166136261
    for byte in name.encode("utf-8"):
        h = (h ^ byte) * 16777619 % 2**32
    return h


class ChatMapper:
    """Answers a batch of rows: columns in, the same columns and four more out.

    A row has `messages`, a conversation in OpenAI's form or as JSON text, or `prompt`, what a user says. Its seed is
    `seed` where it has that column, else it follows from `id`: so a row has the same answer whatever worker gets it, in
    whatever company, and however often it is tried. New are `answer`, `thinking`, `finish_reason` and `error`, which is
    empty where all is well: a row that cannot be answered does not end the others. Rows that a busy model does not take
    wait until it does, for ten minutes at most.

    `options` are those of `Model.chat`; `model_options` those of `Model`.
    """

    def __init__(self, model: str | None = None, model_options: Mapping[str, Any] | None = None, **options: Any):
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise TypeError(f"there is no option {unknown[0]}")
        self._model = Model(model, **(model_options or {}))
        self._options = options

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        column = "messages" if "messages" in batch else "prompt"
        if column not in batch:
            raise KeyError("the rows have neither messages nor a prompt")
        read = _conversation if column == "messages" else str
        found: list[tuple[str, str, str, str]] = []
        ahead: deque[Any] = deque()
        for i in range(len(batch[column])):
            if len(ahead) == _AHEAD:
                found.append(self._end(ahead.popleft()))
            tried, until = self._start(read, batch, column, i), time.monotonic() + _PATIENCE
            while isinstance(tried, (Busy, OutOfMemory)):
                if ahead:  # what this row wants, those before it may hold
                    found.append(self._end(ahead.popleft()))
                elif isinstance(tried, Busy) and time.monotonic() < until:  # another thread's
                    time.sleep(_PAUSE)
                else:
                    break
                tried = self._start(read, batch, column, i)
            ahead.append(tried)
        found += [self._end(s) for s in ahead]
        names = ("answer", "thinking", "finish_reason", "error")
        return {**batch, **{name: [row[k] for row in found] for k, name in enumerate(names)}}

    def _seed(self, batch: Mapping[str, Any], i: int) -> int:
        if "seed" in batch:
            return int(batch["seed"][i])
        return seed_of(str(batch["id"][i])) if "id" in batch else int(self._options.get("seed", 0))

    def _start(self, read: Callable[[Any], Any], batch: Mapping[str, Any], column: str, i: int) -> Any:
        try:
            return self._model.stream(read(batch[column][i]), **{**self._options, "seed": self._seed(batch, i)})
        except (Error, TypeError, ValueError) as e:
            return e

    def _end(self, stream: Any) -> tuple[str, str, str, str]:
        if isinstance(stream, Exception):
            return "", "", "failed", str(stream)
        try:
            answer = stream.result()
        except Error as e:
            return "", "", "failed", str(e)
        return answer.text, answer.thinking, answer.finish_reason, ""


def _conversation(asked: Any) -> Any:
    """Columns of engines may hold lists as arrays, and objects as text."""
    if isinstance(asked, str):
        return json.loads(asked)
    return [_plain(dict(message)) for message in asked]


def _plain(value: Any) -> Any:
    """As JSON has it: arrays as lists, without the empty fields that a table gives to rows which lack them."""
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items() if v is not None}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
