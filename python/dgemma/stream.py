"""An answer while it is made: iterators over its events, for programs with and without a loop of their own."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import threading
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, AsyncIterator, Callable, Iterator

from . import _abi
from ._library import call, lib
from ._options import in_callback
from .errors import Error, error_of
from .events import Answer, End, Event, event_of

if TYPE_CHECKING:
    from ._options import Request
    from .model import Model

_SLICE = 0.2  # seconds in C at a time: in between, Ctrl-C is heard


class Stream:
    """The events of one answer, in order: `for event in stream`, or `async for`.

    Leaving the loop, by `break`, an exception or a cancelled task, cancels the request; so do `close()` and the end of a
    `with` block. `answer` holds what was said so far. One thread at a time takes events; any may cancel and close.
    """

    def __init__(self, model: Model, request: Request):
        self._model = model
        self._request = request  # its callback, which C calls, lives as long as this
        self._handle: c_void_p | None = c_void_p()
        self._lock = threading.RLock()  # of the three below; a signal's handler may come in between
        self._taking = False  # a thread is in C with the handle
        self._leaving = False  # and is to free it
        self._wake: Callable[[], object] | None = None  # a loop that waits for events
        self.answer = Answer(schema=request.schema)
        call(lib.dgemma_request_submit, byref(self._handle), model._engine(), byref(request.options))

    # ---- the end ----

    def cancel(self) -> None:
        """Asks it to end: events come up to `End`, whose finish_reason is "cancelled". Any thread."""
        with self._lock:
            if self._handle and self._model._is_ours():
                lib.dgemma_request_cancel(self._handle)

    def close(self) -> None:
        """Ends it, and gives back what it holds. Inside a callback it is only cancelled."""
        with self._lock:
            if self._taking or getattr(in_callback, "depth", 0):
                self._leaving = self._taking
                self.cancel()
                return
            handle, self._handle = self._handle, None
            if handle and self._wake:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._wake()  # nothing else will
        self._free(handle)  # it waits for a callback, which may want the lock

    def _free(self, handle: c_void_p | None) -> None:
        if handle and self._model._is_ours():
            lib.dgemma_request_free(handle)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def __del__(self):
        self._free(getattr(self, "_handle", None))  # nobody else has it

    # ---- events ----

    def _take(self, seconds: float) -> Event | None:
        """The next event, if one comes in that time."""
        with self._lock:
            if not self._handle:
                raise Error("the stream is closed")
            if self._taking:
                raise Error("another thread takes the stream's events")
            self._taking = True
        try:
            return self._take_event(seconds)
        finally:
            with self._lock:
                self._taking = False
            if self._leaving:
                self.close()

    def _take_event(self, seconds: float) -> Event | None:
        e = _abi.Event()
        while lib.dgemma_request_wait(self._handle, byref(e), seconds):
            if e.kind == _abi.EVENT_END:
                self._raise_failure(e)
            event = event_of(e)
            if event:
                self.answer._add(event)
                return event
        return None

    def _raise_failure(self, e: _abi.Event) -> None:
        if self._request.raised:
            raise self._request.raised
        if e.status:
            raise error_of(e.status, e.text[:e.text_len].decode("utf-8", "replace") if e.text else "the answer failed")

    def __iter__(self) -> Iterator[Event]:
        try:
            while True:
                event = self._take(_SLICE)
                if event:
                    yield event
                if isinstance(event, End):
                    return
        finally:
            self.close()

    async def __aiter__(self) -> AsyncIterator[Event]:
        with self._lock:
            if not self._handle:
                raise Error("the stream is closed")
            bell = self._model._bells().add(self._handle)
            self._wake = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, bell.set)
        try:
            while True:
                bell.clear()
                while (event := self._take(0)) is not None:
                    yield event
                    if isinstance(event, End):
                        return
                await bell.wait()
        finally:
            self._model._bells().remove(bell)
            self._wake = None
            self.close()

    def result(self) -> Answer:
        """Waits for the end, and returns the whole answer."""
        for _ in self:
            pass
        return self.answer

    async def aresult(self) -> Answer:
        """The same without holding up the loop."""
        async for _ in self:
            pass
        return self.answer


class Bells:
    """Wakes loops when requests have events, without Python on the engine's thread.

    What the engine calls is the C library's sem_post; a thread waits for the semaphore and tells the loops, which then
    take all the events that are there.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._semaphore = ctypes.create_string_buffer(64)  # more than a sem_t has anywhere
        if self._libc.sem_init(self._semaphore, 0, 0):
            raise OSError(ctypes.get_errno(), "sem_init")
        self._post = ctypes.cast(self._libc.sem_post, c_void_p)
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._over = False
        self._thread = threading.Thread(target=self._run, name="dgemma-bells", daemon=True)
        self._thread.start()

    def add(self, request: c_void_p) -> asyncio.Event:
        bell = asyncio.Event()
        with self._lock:
            self._waiting[bell] = asyncio.get_running_loop()
        lib.dgemma_request_notify(request, self._post, ctypes.addressof(self._semaphore))
        return bell

    def remove(self, bell: asyncio.Event) -> None:
        with self._lock:
            self._waiting.pop(bell, None)

    def close(self) -> None:
        """After the engine, which may still ring."""
        self._over = True
        self._libc.sem_post(self._semaphore)

    def _run(self) -> None:
        while not self._over:
            self._libc.sem_wait(self._semaphore)
            while self._libc.sem_trywait(self._semaphore) == 0:
                pass  # one look serves all rings
            with self._lock:
                waiting = list(self._waiting.items())
            for bell, loop in waiting:
                try:
                    loop.call_soon_threadsafe(bell.set)
                except RuntimeError:  # the loop is closed: its streams are gone
                    self.remove(bell)
