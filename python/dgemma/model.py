"""A loaded model."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import os
import threading
import weakref
from collections import deque
from ctypes import byref, c_int32, c_size_t, c_void_p, string_at
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from . import _abi, decisions
from ._library import call, lib, pocket_model
from ._options import File, Messages, Request, adapters_of, encode, ids_of, in_callback
from .errors import Busy, Error, OutOfMemory
from .events import Answer
from .stream import Bells, Stream

_KV_TYPES = {"bf16": 0, "f32": 1, "q8_0": 2, "fp8": 3}
_open: weakref.WeakSet[Model] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """While callbacks can still be called: what runs when the interpreter is gone would find nobody."""
    for model in list(_open):
        model.close()


class Model:
    """A model and the thread that runs it. Any number of requests at a time, from any thread.

    ``path`` is a GGUF file or a Hugging Face checkpoint folder; without one the pocket model answers, a small one that
    comes with the package. ``parallel`` requests run together, the others wait. A model is closed by ``close()``, at the
    end of a ``with`` block, or when nothing refers to it any more. It cannot be used in a child of ``fork``: make it
    there.

    What ``chat``, ``generate``, ``stream`` and their like take as options:

    ``max_tokens``, ``seed`` (0: the same each time), ``stop``, ``stop_tokens``, ``temperature``, ``top_k``, ``top_p``,
    ``min_p``, ``logit_bias`` ({token: bias}), ``logprobs`` (how many of the likeliest tokens to tell with each);
    ``system``, ``tools`` (OpenAI's list), ``tool_choice`` ("auto", "none", "required", or a tool's name),
    ``single_tool_call``, ``answer_prefix``, ``thinking``, ``thinking_budget``; ``images`` and ``videos`` (paths, or files
    as bytes), ``image_tokens``; ``schema`` (a JSON Schema, or a pydantic class), ``regex``, ``choices``, ``grammar``,
    ``json_object``, with ``compact`` and ``lenient``, or a ``constraint`` that was made before; ``canvas`` (tokens the
    answer starts from, -1 for noise), ``pinned``, ``strength``; ``max_denoise_steps``, ``t_min``, ``t_max``,
    ``entropy_bound``, ``stability_threshold``, ``confidence_threshold``, ``canvas_length``, ``settled_steps``;
    ``drafts`` (an event for each step), ``on_step`` (a function that is called with each ``Step``, on the model's thread:
    everything waits for it; False ends the answer), ``cache_salt``; ``adapters`` (a name, several, or {name: scale}, of
    those that the model was opened with as {name: path}). dgemma.h says what each of them means.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, device: str | None = None, weights: str | None = None,
                 threads: int = 0, context: int = 0, parallel: int = 16, queue: int = 0, kv_type: str = "bf16",
                 kv_bytes: int = 0, gpu_bytes: int = 0, mmproj: str | os.PathLike[str] | None = None,
                 adapters: Mapping[str, str | os.PathLike[str]] | None = None, chat_template: str | None = None,
                 cpu: str | None = None, profile: str | None = None,
                 prefix_cache: bool = True, on_progress: Callable[[float], bool | None] | None = None):
        if kv_type not in _KV_TYPES:
            raise ValueError(f"kv_type: {', '.join(_KV_TYPES)} are known")
        o = lib.dgemma_engine_defaults()
        self.path = os.fspath(path) if path is not None else pocket_model()
        o.model_path = os.fsencode(self.path)
        o.device, o.weights, o.cpu, o.profile = encode(device), encode(weights), encode(cpu), encode(profile)
        o.chat_template = encode(chat_template)
        o.mmproj = os.fsencode(mmproj) if mmproj is not None else None
        o.n_threads, o.context_length, o.max_running, o.queue_length = threads, context, parallel, queue
        o.kv_type, o.kv_bytes, o.gpu_bytes = _KV_TYPES[kv_type], kv_bytes, gpu_bytes
        o.no_prefix_cache = not prefix_cache
        files = adapters_of(adapters or {})
        o.adapters, o.n_adapters = files, len(files)
        raised: list[BaseException] = []
        o.on_progress = _abi.ProgressFn(_progress(on_progress, raised))
        self._handle: c_void_p | None = c_void_p()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._bell_thread: Bells | None = None
        try:
            call(lib.dgemma_engine_open, byref(self._handle), byref(o))
        except Error:
            if raised:
                raise raised[0] from None
            raise
        _open.add(self)

    # ---- life ----

    def _is_ours(self) -> bool:
        return os.getpid() == self._pid

    def _engine(self) -> c_void_p:
        if not self._is_ours():
            raise Error("the model was opened before fork(): open it in the process that uses it")
        if not self._handle:
            raise Error("the model is closed")
        return self._handle

    def _bells(self) -> Bells:
        with self._lock:
            if not self._bell_thread:
                self._bell_thread = Bells()
            return self._bell_thread

    def close(self) -> None:
        """Ends what runs, and frees the model. Not while another thread is in a call with it."""
        with self._lock:
            handle, self._handle = self._handle, None
        if not handle or not self._is_ours():
            return
        if getattr(in_callback, "depth", 0):  # the engine's thread cannot wait for itself
            threading.Thread(target=lib.dgemma_engine_close, args=(handle,)).start()
            return
        lib.dgemma_engine_close(handle)
        if self._bell_thread:
            self._bell_thread.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def __repr__(self) -> str:
        return f"<dgemma.Model {self.path}{'' if self._handle else ', closed'}>"

    @property
    def info(self) -> dict[str, Any]:
        """What is known of it: shape, context, backend, numerics, memory (`dgemma_model_info` in dgemma.h)."""
        info = _abi.ModelInfo()
        lib.dgemma_engine_info(self._engine(), byref(info))
        values = ((f[0], getattr(info, f[0])) for f in info._fields_)
        return {name: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for name, v in values}

    # ---- tokens ----

    def tokenize(self, text: str, markers: bool = False) -> list[int]:
        """Token ids. With `markers`, special tokens written in the text count as such."""
        data, n = text.encode("utf-8"), c_size_t()
        ids = (c_int32 * (len(data) + 8))()  # a token is a byte or more
        call(lib.dgemma_tokenize, self._engine(), data, len(data), markers, ids, len(ids), byref(n))
        return ids[:n.value]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of token ids; special tokens are printed."""
        text, n = c_void_p(), c_size_t()
        call(lib.dgemma_detokenize, self._engine(), ids_of(tokens), len(tokens), byref(text), byref(n))
        try:
            return string_at(text, n.value).decode("utf-8", "replace") if text else ""
        finally:
            lib.dgemma_free(text)

    def count(self, messages: str | Messages, **options: Any) -> int:
        """How many tokens the prompt of this conversation has, pictures included."""
        request, n = self._conversation(messages, options), c_size_t()
        call(lib.dgemma_prompt_count, self._engine(), byref(request.options), byref(n))
        return n.value

    # ---- answers ----

    def _conversation(self, messages: str | Messages, options: Mapping[str, Any]) -> Request:
        request = Request(self._engine(), options)
        request.conversation(messages)
        return request

    def _completion(self, prompt: str | Sequence[int], options: Mapping[str, Any]) -> Request:
        request = Request(self._engine(), options)
        request.prompt(prompt)
        return request

    def stream(self, messages: str | Messages, **options: Any) -> Stream:
        """The events of an answer as they come, for `for` and `async for`: thoughts, text, calls, with `drafts=True` each
        step of the canvas. Leaving the loop cancels it."""
        return Stream(self, self._conversation(messages, options))

    def stream_generate(self, prompt: str | Sequence[int], **options: Any) -> Stream:
        """The same for a prompt that is taken as it stands."""
        return Stream(self, self._completion(prompt, options))

    def chat(self, messages: str | Messages, **options: Any) -> Answer:
        """Answers what a user says, or a conversation in OpenAI's form."""
        return self.stream(messages, **options).result()

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Answer:
        """Goes on from a prompt, text or tokens, that is taken as it stands: special tokens in it and all."""
        return self.stream_generate(prompt, **options).result()

    async def achat(self, messages: str | Messages, **options: Any) -> Answer:
        """`chat` without holding up the loop; cancelling the task cancels the answer."""
        return await self.stream(messages, **options).aresult()

    async def agenerate(self, prompt: str | Sequence[int], **options: Any) -> Answer:
        """`generate` without holding up the loop."""
        return await self.stream_generate(prompt, **options).aresult()

    def infill(self, prefix: str, suffix: str, **options: Any) -> Answer:
        """Writes what is missing between two texts."""
        request = Request(self._engine(), {**options, "answer_prefix": prefix, "suffix": suffix})
        return Stream(self, request).result()

    # ---- many ----

    def _each(self, make: Callable[[int], Request], n: int) -> Iterator[Answer]:
        """In their order; as many are ahead as the engine takes."""
        ahead: deque[Stream] = deque()
        at = 0
        try:
            while at < n or ahead:
                full = False
                while at < n and not full and len(ahead) < 256:
                    try:
                        ahead.append(Stream(self, make(at)))
                        at += 1
                    except (Busy, OutOfMemory):  # what is ahead may hold what this one wants
                        full = True
                        if not ahead:
                            raise
                answer = ahead[0].result()
                ahead.popleft()
                yield answer
        finally:
            for stream in ahead:
                stream.close()

    def _batch(self, make: Callable[[Any, Mapping[str, Any]], Request], items: Iterable[Any], seeds: Sequence[int] | None,
               options: dict[str, Any]) -> list[Answer]:
        listed = list(items)
        if seeds is not None and len(seeds) != len(listed):
            raise ValueError(f"{len(seeds)} seeds for {len(listed)} prompts")

        def one(i: int) -> Request:
            return make(listed[i], options if seeds is None else {**options, "seed": seeds[i]})

        return list(self._each(one, len(listed)))

    def chat_batch(self, conversations: Iterable[str | Messages], *, seeds: Sequence[int] | None = None,
                   **options: Any) -> list[Answer]:
        """Answers many conversations together; each answer is what it would be alone. One that fails raises, and ends the
        others."""
        return self._batch(self._conversation, conversations, seeds, options)

    def generate_batch(self, prompts: Iterable[str | Sequence[int]], *, seeds: Sequence[int] | None = None,
                       **options: Any) -> list[Answer]:
        """Goes on from many prompts together."""
        return self._batch(self._completion, prompts, seeds, options)

    # ---- decisions ----

    def decide(self, about: str | Messages, questions: Mapping[str, decisions.Question], *, images: Sequence[File] = (),
               seed: int = 0, samples: int | None = 1, orders: int = 1, steps: int = 1, think: int = 0,
               independent: bool = False, temperature: float = 1.0, cache_salt: str | None = None) -> decisions.Decisions:
        """Answers questions about a text, a conversation or pictures with labels, and says how likely each label is: one
        pass over a short canvas. `samples` None: more where there is doubt."""
        return decisions.decide(self, about, questions, images, seed, samples, orders, steps, think, independent,
                                temperature, cache_salt)

    async def adecide(self, about: str | Messages, questions: Mapping[str, decisions.Question],
                      **options: Any) -> decisions.Decisions:
        """`decide` without holding up the loop, on a thread of its own. A task that is cancelled ends when the thread does:
        the model may be closed then."""
        work = functools.partial(contextvars.copy_context().run, self.decide, about, questions, **options)
        thread = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            while not thread.done():
                try:
                    await asyncio.wait([thread])
                except asyncio.CancelledError:  # again
                    pass
            thread.exception()  # nobody asks for it any more
            raise


def _progress(on_progress: Callable[[float], bool | None] | None, raised: list[BaseException]):
    """Ctrl-C while a model is loaded is heard here."""
    def progress(_user, fraction: float) -> bool:
        try:
            told = on_progress(fraction) if on_progress else None
            return told is None or bool(told)
        except BaseException as e:  # noqa: BLE001 - C cannot take it
            raised.append(e)
            return False
    return progress
