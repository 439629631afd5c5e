"""What can go wrong, by the status that the library gives."""

from __future__ import annotations


class Error(Exception):
    """What the library said; every other error of this package is one too."""

    status = 0


class InvalidRequest(Error, ValueError):
    """Something was asked for that makes no sense."""

    status = -1


class OutOfMemory(Error, MemoryError):
    status = -2


class FileProblem(Error, OSError):
    """A file is missing or cannot be read."""

    status = -3

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BrokenFile(Error, ValueError):
    """A file's content is broken or contradicts itself."""

    status = -4


class Unsupported(Error):
    """Well-formed, but not something this version can do."""

    status = -5


class LimitExceeded(Error):
    status = -6


class Cancelled(Error):
    """A callback, or somebody else, asked to stop."""

    status = -7


class InternalError(Error):
    """A bug or a broken device."""

    status = -8


class ContextExceeded(Error, ValueError):
    """The prompt leaves no room for an answer: it has at least `n_prompt` tokens, the context `n_context`."""

    status = -9
    n_context = 0
    n_prompt = 0


class Busy(Error):
    """Too much is waiting already; the same may be possible later."""

    status = -10


_CLASSES = {
    c.status: c
    for c in (InvalidRequest, OutOfMemory, FileProblem, BrokenFile, Unsupported, LimitExceeded, Cancelled, InternalError,
              ContextExceeded, Busy)
}


def error_of(status: int, message: str, n_context: int = 0, n_prompt: int = 0) -> Error:
    error = _CLASSES.get(status, InternalError)(message)
    if isinstance(error, ContextExceeded):
        error.n_context, error.n_prompt = n_context, n_prompt
    return error
