"""The shared library: found, loaded, its functions declared.

All calls release the GIL while C works. Only what is called on the engine's own thread, `on_step`, takes it there.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int32, c_size_t, c_void_p
from pathlib import Path

from . import _abi
from .errors import error_of

__version__ = "0.2.0"

_HERE = Path(__file__).resolve().parent
_NAME = "libdgemma.so." + __version__.split(".", maxsplit=1)[0]


def _places(file: str, in_source: str) -> list[Path]:
    """Inside the package where it was installed, in the source tree where it was not."""
    return [_HERE / file, _HERE.parent.parent / in_source / file]


def _find(file: str, in_source: str) -> Path | None:
    return next((p for p in _places(file, in_source) if p.exists()), None)


def pocket_model() -> str:
    """The path of the small model that comes with the package."""
    path = _find("pocket.gguf", "models/pocket")
    if not path:
        raise FileNotFoundError("the pocket model is neither in the package nor in the source: name a model")
    return str(path)


_SIGNATURES = {
    "dgemma_version": (c_char_p, []),
    "dgemma_engine_defaults": (_abi.EngineOptions, []),
    "dgemma_engine_open": (c_int, [POINTER(c_void_p), POINTER(_abi.EngineOptions), POINTER(_abi.Error)]),
    "dgemma_engine_close": (None, [c_void_p]),
    "dgemma_engine_info": (None, [c_void_p, POINTER(_abi.ModelInfo)]),
    "dgemma_adapter_find": (c_int, [c_void_p, c_char_p]),
    "dgemma_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_bool, POINTER(c_int32), c_size_t, POINTER(c_size_t),
                                POINTER(_abi.Error)]),
    "dgemma_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_void_p), POINTER(c_size_t),
                                  POINTER(_abi.Error)]),
    "dgemma_free": (None, [c_void_p]),
    "dgemma_constraint_create": (c_int, [POINTER(c_void_p), POINTER(_abi.ConstraintOptions), POINTER(_abi.Error)]),
    "dgemma_constraint_free": (None, [c_void_p]),
    "dgemma_constraint_ignored": (c_char_p, [c_void_p]),
    "dgemma_request_defaults": (_abi.RequestOptions, [c_void_p]),
    "dgemma_request_submit": (c_int, [POINTER(c_void_p), c_void_p, POINTER(_abi.RequestOptions), POINTER(_abi.Error)]),
    "dgemma_prompt_count": (c_int, [c_void_p, POINTER(_abi.RequestOptions), POINTER(c_size_t), POINTER(_abi.Error)]),
    "dgemma_request_wait": (c_bool, [c_void_p, POINTER(_abi.Event), c_double]),
    "dgemma_request_notify": (None, [c_void_p, c_void_p, c_void_p]),
    "dgemma_request_cancel": (None, [c_void_p]),
    "dgemma_request_free": (None, [c_void_p]),
    "dgemma_decide_defaults": (_abi.DecideOptions, []),
    "dgemma_decide": (c_int, [POINTER(c_void_p), c_void_p, POINTER(_abi.DecideOptions), POINTER(_abi.Error)]),
    "dgemma_decision_free": (None, [c_void_p]),
    "dgemma_decision_answer": (POINTER(_abi.Answer), [c_void_p, c_size_t]),
    "dgemma_decision_thought": (c_char_p, [c_void_p]),
}


def _load() -> ctypes.CDLL:
    path = _find(_NAME, "build/release")
    if not path:
        raise ImportError(f"{_NAME} is in none of its places: "
                          + ", ".join(str(p) for p in _places(_NAME, "build/release"))
                          + "; `make` builds it")
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    version = library.dgemma_version().decode()
    if version != __version__:
        raise ImportError(f"{path} is version {version}, this package needs {__version__}: structures may differ")
    return library


lib = _load()


def call(function, *arguments) -> None:
    """Calls a function whose last argument is an error, and raises what it says."""
    error = _abi.Error()
    status = function(*arguments, byref(error))
    if status:
        raise error_of(status, error.msg.decode("utf-8", "replace"), error.n_context, error.n_prompt)
