"""Questions whose answers are labels, and how likely each label is."""

from __future__ import annotations

from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping, Sequence, Union

from . import _abi
from ._library import call, lib
from ._options import File, Messages, encode, media_of, to_json

if TYPE_CHECKING:
    from .model import Model

# Names, or names with what they mean.
Options = Union[Sequence[str], Mapping[str, Union[str, None]]]


@dataclass(frozen=True)
class YesNo:
    """A question of yes or no, and what these mean where that is not plain."""

    text: str
    yes: str | None = None
    no: str | None = None
    kind = _abi.YES_NO

    def _options(self) -> list[tuple[str, str | None]]:
        return [("yes", self.yes), ("no", self.no)]


@dataclass(frozen=True)
class Choice:
    """One of up to 255 options."""

    text: str
    options: Options
    kind = _abi.CHOICE

    def _options(self) -> list[tuple[str, str | None]]:
        return list(self.options.items()) if isinstance(self.options, Mapping) else [(o, None) for o in self.options]


@dataclass(frozen=True)
class Score(Choice):
    """A level, the lowest first, of up to 10."""

    kind = _abi.SCORE


Question = Union[YesNo, Choice, Score]


@dataclass(frozen=True)
class Decision:
    """The answer to one question; `probabilities` by name, which sum up to 1."""

    probabilities: dict[str, float]
    best: str
    score: float  # the mean level
    confidence: float  # how far the likeliest is ahead of the next
    label_mass: float  # of all the model's probability, before the rest was left out
    entropy: float
    standard_error: float
    n_reads: int

    def __bool__(self) -> bool:
        """Of a question of yes or no: whether yes is the likelier."""
        if set(self.probabilities) != {"yes", "no"}:
            raise TypeError("only a question of yes or no is true or false; see .best")
        return self.best == "yes"


@dataclass(frozen=True)
class Decisions(Mapping):
    """Answers by the names of their questions."""

    answers: dict[str, Decision] = field(default_factory=dict)
    thought: str = ""

    def __getitem__(self, name: str) -> Decision:
        return self.answers[name]

    def __iter__(self):
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


def _structures(questions: Sequence[Question]):
    out = (_abi.Question * len(questions))()
    for q, question in zip(out, questions):
        named = question._options()
        told = question.kind != _abi.YES_NO or any(d is not None for _, d in named)
        options = (_abi.Option * len(named))(*(_abi.Option(encode(n), encode(d)) for n, d in named)) if told else None
        q.kind, q.text = question.kind, encode(question.text)
        if options is not None:
            q.options, q.n_options = options, len(named)
    return out


def _decision(question: Question, a: _abi.Answer) -> Decision:
    names = [name for name, _ in question._options()]
    return Decision(dict(zip(names, a.probability[:a.n_options])), names[a.best], a.score, a.confidence, a.label_mass,
                    a.entropy, a.standard_error, a.n_reads)


def decide(model: Model, about: str | Messages, questions: Mapping[str, Question], images: Sequence[File], seed: int,
           samples: int | None, orders: int, steps: int, think: int, independent: bool, temperature: float,
           cache_salt: str | None) -> Decisions:
    asked: list[Any] = list(questions.values())
    structures, media = _structures(asked), media_of(images)
    o = lib.dgemma_decide_defaults()
    if isinstance(about, str):
        o.state = encode(about)
    else:
        o.messages = to_json(list(about))
    o.media, o.n_media = media, len(media)
    o.questions, o.n_questions = structures, len(asked)
    o.seed, o.samples, o.orders, o.steps, o.think = seed, samples or 0, orders, steps, think
    o.independent, o.temperature, o.cache_salt = independent, temperature, encode(cache_salt)
    handle = c_void_p()
    call(lib.dgemma_decide, byref(handle), model._engine(), byref(o))
    try:
        answers = {name: _decision(q, lib.dgemma_decision_answer(handle, i).contents)
                   for i, (name, q) in enumerate(questions.items())}
        return Decisions(answers, lib.dgemma_decision_thought(handle).decode("utf-8", "replace"))
    finally:
        lib.dgemma_decision_free(handle)
