"""What a model says while it works, and what it has said in the end."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import Any, ClassVar, Sequence, Union

from . import _abi

try:
    import numpy
except ImportError:  # arrays are Python's own then
    numpy = None  # type: ignore[assignment]

# numpy.ndarray where numpy is installed, array.array where it is not.
Array = Any

_TYPES = {"int32": "i", "float32": "f", "uint8": "B"}


def copy_array(pointer, n: int, dtype: str) -> Array | None:
    """What an event points to lives until the next one: a copy of it."""
    if not pointer:
        return None
    if numpy is not None:
        return numpy.ctypeslib.as_array(pointer, (n,)).astype(dtype, copy=True) if n else numpy.empty(0, dtype)
    return array(_TYPES[dtype], pointer[:n])


@dataclass(frozen=True)
class Stats:
    """Counts and times of one answer; see `dgemma_stats` in dgemma.h for each."""

    finish_reason: str
    stop_string: int
    n_prompt_cached: int
    n_prompt: int
    n_output: int
    n_thinking: int
    n_pictures: int
    n_pictures_encoded: int
    n_blocks: int
    n_converged: int
    n_steps: int
    n_tries: int
    agreement: float
    resistance: float
    n_positions: int
    queue_seconds: float
    prompt_seconds: float
    denoise_seconds: float
    first_text_seconds: float
    kv_bytes: int

    @classmethod
    def _of(cls, s: _abi.Stats) -> Stats:
        values = {name: getattr(s, name) for name in (f[0] for f in s._fields_) if name != "end"}
        return cls(finish_reason=_abi.END_NAMES[s.end], **values)


@dataclass(frozen=True)
class Prompt:
    """Some of the prompt is encoded."""

    kind: ClassVar[str] = "prompt"
    n_done: int
    n_total: int


@dataclass(frozen=True)
class Text:
    """A piece of the answer."""

    kind: ClassVar[str] = "text"
    text: str
    broken_call: bool = False  # it was to be a call of a tool, and cannot be read as one

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Thinking:
    """A piece of thought."""

    kind: ClassVar[str] = "thinking"
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call that the model wants to be made; `text` is its arguments as JSON."""

    kind: ClassVar[str] = "tool_call"
    name: str
    text: str
    index: int = 0

    @property
    def arguments(self) -> dict[str, Any]:
        return json.loads(self.text)


@dataclass(frozen=True, eq=False)
class Draft:
    """The canvas after a step, while it settles. Arrays have an entry for each position."""

    kind: ClassVar[str] = "draft"
    block: int
    step: int
    tokens: Array  # the most likely ones, int32
    entropy: Array  # in nats, float32
    accepted: Array  # 1 where the step's draw stays, 0 where there is noise again, uint8
    pinned: Array | None  # 1 where a token was given and stays; None: nowhere
    mean_entropy: float
    resistance: float
    n_gap: int
    trying: bool


@dataclass(frozen=True, eq=False)
class Block:
    """A block is finished. Log-probabilities are there where they were asked for."""

    kind: ClassVar[str] = "block"
    block: int
    tokens: Array
    converged: bool
    seconds: float
    logprobs: Array | None = None
    top_tokens: list[list[int]] | None = None
    top_logprobs: list[list[float]] | None = None


@dataclass(frozen=True)
class End:
    """The last event."""

    kind: ClassVar[str] = "end"
    stats: Stats


Event = Union[Prompt, Text, Thinking, ToolCall, Draft, Block, End]


def _text(e: _abi.Event) -> str:
    return e.text[:e.text_len].decode("utf-8", "replace") if e.text else ""


def _rows(pointer, n: int, width: int) -> list[list] | None:
    return [pointer[i * width:(i + 1) * width] for i in range(n)] if pointer else None


def event_of(e: _abi.Event) -> Event | None:
    """An event of the library's, copied. None: it is of a kind that is not known here."""
    n = e.n_tokens
    if e.kind == _abi.EVENT_TEXT:
        return Text(_text(e), e.broken_call)
    if e.kind == _abi.EVENT_THINKING:
        return Thinking(_text(e))
    if e.kind == _abi.EVENT_TOOL_CALL:
        return ToolCall(e.tool_name.decode("utf-8", "replace"), _text(e), e.tool_index)
    if e.kind == _abi.EVENT_PROMPT:
        return Prompt(e.n_done, e.n_total)
    if e.kind == _abi.EVENT_DRAFT:
        return Draft(e.block, e.step, copy_array(e.tokens, n, "int32"), copy_array(e.entropy, n, "float32"),
                     copy_array(e.accepted, n, "uint8"), copy_array(e.pinned, n, "uint8"), e.mean_entropy, e.resistance,
                     e.n_gap, e.trying)
    if e.kind == _abi.EVENT_BLOCK:
        return Block(e.block, copy_array(e.tokens, n, "int32"), e.converged, e.seconds, copy_array(e.logprobs, n, "float32"),
                     _rows(e.top_tokens, n, e.n_top), _rows(e.top_logprobs, n, e.n_top))
    if e.kind == _abi.EVENT_END:
        return End(Stats._of(e.stats))
    return None


@dataclass
class Answer:
    """What a model has said."""

    text: str = ""
    thinking: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of all blocks, thoughts and markers included
    logprobs: list[float] | None = None  # of these, where they were asked for
    top_logprobs: list[dict[int, float]] | None = None
    stats: Stats | None = None
    schema: Any = None  # what it was held to: a class with model_validate_json, as pydantic's, makes `parsed`

    def __str__(self) -> str:
        return self.text

    @property
    def finish_reason(self) -> str:
        """"stop", "length", "context" or "tool_calls"; "cancelled" for one that was left."""
        return self.stats.finish_reason if self.stats else "cancelled"

    def json(self) -> Any:
        """The text, read as JSON."""
        return json.loads(self.text)

    @property
    def parsed(self) -> Any:
        """The text as an object of the class that was given as schema; without one as json()."""
        validate = getattr(self.schema, "model_validate_json", None)
        return validate(self.text) if validate else self.json()

    def _add(self, e: Event) -> None:
        if isinstance(e, Text):
            self.text += e.text
        elif isinstance(e, Thinking):
            self.thinking += e.text
        elif isinstance(e, ToolCall):
            self.tool_calls.append(e)
        elif isinstance(e, Block):
            self.tokens.extend(int(t) for t in e.tokens)
            self._add_logprobs(e)
        elif isinstance(e, End):
            self.stats = e.stats

    def _add_logprobs(self, e: Block) -> None:
        if e.logprobs is None:
            return
        self.logprobs = (self.logprobs or []) + [float(p) for p in e.logprobs]
        if e.top_tokens is not None and e.top_logprobs is not None:
            rows: Sequence = [dict(zip(t, p)) for t, p in zip(e.top_tokens, e.top_logprobs)]
            self.top_logprobs = (self.top_logprobs or []) + list(rows)


class Step:
    """A step of the diffusion, for a callback that takes part in it.

    `canvas` is what the next step will look at: what it holds when the callback returns, ids in the vocabulary. The
    arrays are copies, and may be kept.
    """

    def __init__(self, s: _abi.Step):
        self.block: int = s.block
        self.step: int = s.step
        self.finished: bool = s.finished
        self.canvas = copy_array(s.canvas, s.n, "int32")
        self.argmax = copy_array(s.argmax, s.n, "int32")
        self.entropy = copy_array(s.entropy, s.n, "float32")
        self.accepted = copy_array(s.accepted, s.n, "uint8")
