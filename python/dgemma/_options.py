"""Python's arguments as the structures that C takes, and everything that has to live as long as they are looked at."""

from __future__ import annotations

import json
import operator
import os
import threading
from ctypes import byref, c_char_p, c_int32, c_uint8, c_void_p, memmove, sizeof
from typing import Any, Callable, Mapping, Sequence, Union

from . import _abi
from ._library import call, lib
from .events import Step

Messages = Sequence[Mapping[str, Any]]
File = Union[str, "os.PathLike[str]", bytes]
StepCallback = Callable[[Step], "bool | None"]

in_callback = threading.local()  # .depth: on the engine's thread, in a callback


def encode(text: str | None) -> bytes | None:
    """For C, where a NUL ends a text: one inside would cut it short."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"wanted text, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError("a text has a NUL character in it")
    return text.encode("utf-8")


def to_json(value: Any) -> bytes:
    return encode(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) or b""


def id_of(token: Any) -> int:
    """A token's id, numpy's whole numbers included; C would cut one that is too large."""
    token = operator.index(token)
    if not -2**31 <= token < 2**31:
        raise ValueError(f"{token} is no token")
    return token


def ids_of(ids: Sequence[int]):
    return (c_int32 * len(ids))(*(id_of(i) for i in ids))


def texts_of(texts: Sequence[str]):
    if isinstance(texts, str):
        texts = [texts]
    return (c_char_p * len(texts))(*(encode(t) for t in texts))


def media_of(images: Sequence[File], videos: Sequence[File] = ()):
    """Pictures and videos, as paths or as the bytes of files."""
    for name, given in (("images", images), ("videos", videos)):
        if isinstance(given, (str, bytes, os.PathLike)):
            raise TypeError(f"{name}: wanted a list of files")
    files = [(f, False) for f in images] + [(f, True) for f in videos]
    media = (_abi.Media * len(files))()
    for m, (file, video) in zip(media, files):
        m.video = video
        if isinstance(file, (bytes, bytearray, memoryview)):
            m.data = bytes(file)
            m.size = len(file)
        else:
            m.path = os.fsencode(file)
    return media


def adapters_of(files: Mapping[str, Union[str, "os.PathLike[str]"]]):
    """LoRA files by the names that requests will use."""
    out = (_abi.Adapter * len(files))()
    for a, (name, path) in zip(out, files.items()):
        a.name, a.path, a.scale = encode(name), os.fsencode(path), 1.0
    return out


def uses_of(engine: c_void_p, adapters: Any):
    """A name, several, or {name: scale}."""
    if isinstance(adapters, str):
        adapters = [adapters]
    scales = dict(adapters) if isinstance(adapters, Mapping) else dict.fromkeys(adapters, 1.0)
    out = (_abi.AdapterUse * len(scales))()
    for use, (name, scale) in zip(out, scales.items()):
        use.adapter, use.scale = lib.dgemma_adapter_find(engine, encode(name)), scale
        if use.adapter < 0:
            raise ValueError(f"there is no adapter {name!r}")
    return out


class Constraint:
    """A language that answers are held to: any number of requests, from any thread.

    `schema` is a JSON Schema as a dict or text, or a class with `model_json_schema()`, as pydantic's have. With `lenient`,
    keywords that are not supported are left out of it, and listed in `ignored`.
    """

    def __init__(self, *, schema: Any = None, regex: str | None = None, choices: Sequence[str] | None = None,
                 grammar: str | None = None, json_object: bool = False, compact: bool = False, lenient: bool = False):
        given = [x is not None for x in (schema, regex, choices, grammar)] + [json_object]
        if sum(given) != 1:
            raise ValueError("give one of schema, regex, choices, grammar and json_object")
        o = _abi.ConstraintOptions(compact=compact, lenient=lenient)
        self.schema = schema
        self._handle = c_void_p()
        text: bytes | None = None
        if schema is not None:
            make = getattr(schema, "model_json_schema", None)
            o.kind, text = _abi.CONSTRAINT_SCHEMA, to_json(make() if make else schema)
        elif regex is not None:
            o.kind, text = _abi.CONSTRAINT_REGEX, encode(regex)
        elif grammar is not None:
            o.kind, text = _abi.CONSTRAINT_GRAMMAR, encode(grammar)
        else:
            o.kind = _abi.CONSTRAINT_OBJECT if json_object else _abi.CONSTRAINT_CHOICE
        o.text, o.text_len = text, len(text or b"")
        if choices is not None:
            texts = texts_of(choices)
            o.choices, o.n_choices = texts, len(texts)
        call(lib.dgemma_constraint_create, byref(self._handle), byref(o))

    @property
    def ignored(self) -> list[str]:
        """What was left out of a lenient schema: "KEYWORD at POINTER"."""
        return lib.dgemma_constraint_ignored(self._handle).decode().splitlines()

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle:
            lib.dgemma_constraint_free(handle)
            self._handle = None


_HELD = ("schema", "regex", "choices", "grammar", "json_object")
_TEXTS = ("system", "answer_prefix", "cache_salt", "suffix", "passage", "instruction")
_PLAIN = ("image_tokens", "single_tool_call", "thinking", "thinking_budget", "keep_length", "strength", "seed",
          "max_tokens", "temperature", "top_k", "top_p", "min_p", "settled_steps", "max_denoise_steps", "t_min", "t_max",
          "entropy_bound", "stability_threshold", "confidence_threshold", "canvas_length", "drafts")

OPTIONS = (*_TEXTS, *_PLAIN, *_HELD, "constraint", "compact", "lenient", "images", "videos", "tools", "tool_choice", "stop",
           "stop_tokens", "logit_bias", "logprobs", "canvas", "pinned", "on_step", "adapters")


class Request:
    """One request's options, and who is to be called back."""

    def __init__(self, engine: c_void_p, given: Mapping[str, Any]):
        self.options = lib.dgemma_request_defaults(engine)
        self.schema: Any = None
        self.raised: BaseException | None = None  # by a callback
        self._kept: list[Any] = []  # what the structure points to
        given = {name: value for name, value in given.items() if value is not None}
        unknown = sorted(set(given) - set(OPTIONS))
        if unknown:
            raise TypeError(f"there is no option {unknown[0]}; known are {', '.join(sorted(OPTIONS))}")
        for name in _TEXTS:
            if name in given:
                setattr(self.options, name, encode(given[name]))
        for name in _PLAIN:
            if name in given:
                self._set(name, given[name])
        self._hold(given)
        self._add_lists(given)
        self._add_tools(given)
        if "adapters" in given:
            uses = uses_of(engine, given["adapters"])
            self.options.adapters, self.options.n_adapters = uses, len(uses)
        if "on_step" in given:
            self._call_back(given["on_step"])

    def _set(self, name: str, value: Any) -> None:
        current = getattr(self.options, name)
        if isinstance(current, float):
            value = float(value)
        elif isinstance(current, bool) and not isinstance(value, str):
            value = bool(value)
        elif not hasattr(value, "__index__"):
            raise TypeError(f"{name}: wanted a whole number, not {type(value).__name__}")
        else:
            value = operator.index(value)
            if name == "seed" and not 0 <= value < 2**64:
                raise ValueError("seed: wanted a whole number from 0 to 18446744073709551615")
            if name != "seed" and not -2**31 <= value < 2**31:
                raise ValueError(f"{name}: {value} is out of range")
        setattr(self.options, name, value)

    def prompt(self, prompt: Any) -> None:
        """A prompt as it stands: text, markers in it and all, or tokens."""
        if isinstance(prompt, str):
            self.options.raw_prompt = encode(prompt)
        else:
            self.options.tokens, self.options.n_tokens = ids_of(prompt), len(prompt)

    def conversation(self, messages: str | Messages) -> None:
        """What a user says, or a conversation in OpenAI's form."""
        if isinstance(messages, str):
            self.options.chat_prompt = encode(messages)
        else:
            self.options.messages = to_json(list(messages))

    def _hold(self, given: Mapping[str, Any]) -> None:
        held = given.get("constraint")
        switches = ("json_object", "compact", "lenient")  # one that is off says nothing
        named = {name: given[name] for name in (*_HELD, "compact", "lenient")
                 if name in given and (name not in switches or given[name])}
        if held is not None and named:
            raise ValueError("a constraint has its schema already")
        if held is None and named:
            held = Constraint(**named)
        if held is not None:
            self._kept.append(held)
            self.schema = held.schema
            self.options.constraint = held._handle

    def _add_lists(self, given: Mapping[str, Any]) -> None:
        o = self.options
        media = media_of(given.get("images", ()), given.get("videos", ()))
        o.media, o.n_media = media, len(media)
        if "stop" in given:
            stop = texts_of(given["stop"])
            o.stop, o.n_stop = stop, len(stop)
        if "stop_tokens" in given:
            o.stop_tokens, o.n_stop_tokens = ids_of(given["stop_tokens"]), len(given["stop_tokens"])
        if "logit_bias" in given:
            entries = [_abi.LogitBias(id_of(int(t) if isinstance(t, str) else t), float(b)) for t, b in given["logit_bias"].items()]
            bias = (_abi.LogitBias * len(entries))(*entries)
            o.logit_bias, o.n_logit_bias = bias, len(bias)
        if "logprobs" in given:
            self._set("n_logprobs", given["logprobs"])
        if "canvas" in given:
            self._start_from(given["canvas"], given.get("pinned"))

    def _start_from(self, canvas: Sequence[int], pinned: Sequence[Any] | None) -> None:
        self.options.canvas, self.options.n_canvas = ids_of(canvas), len(canvas)
        if pinned is not None:
            if len(pinned) != len(canvas):
                raise ValueError("pinned is as long as canvas")
            self.options.pinned = (c_uint8 * len(pinned))(*(1 if p else 0 for p in pinned))

    def _add_tools(self, given: Mapping[str, Any]) -> None:
        if "tools" in given:
            self.options.tools = to_json(given["tools"])
        choice = given.get("tool_choice", "auto")
        self.options.tool_choice = _abi.TOOL_CHOICES.get(choice, _abi.TOOLS_NAMED)
        if choice not in _abi.TOOL_CHOICES:
            self.options.tool_name = encode(choice)

    def _call_back(self, on_step: StepCallback) -> None:
        """On the engine's thread; what is raised ends the request, and is raised again where its events are taken."""
        def step(_user, s):
            in_callback.depth = getattr(in_callback, "depth", 0) + 1
            try:
                seen = Step(s.contents)
                told = on_step(seen)
                if len(seen.canvas) != s.contents.n:
                    raise ValueError(f"the canvas has {s.contents.n} tokens, not {len(seen.canvas)}")
                canvas = ids_of(seen.canvas)
                memmove(s.contents.canvas, canvas, sizeof(canvas))
                return told is None or bool(told)
            except BaseException as e:  # noqa: BLE001 - C cannot take it
                self.raised = e
                return False
            finally:
                in_callback.depth -= 1

        self.options.on_step = _abi.StepFn(step)


