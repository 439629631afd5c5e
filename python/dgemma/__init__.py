"""dgemma runs DiffusionGemma, a language model that writes by denoising.

    import dgemma

    model = dgemma.Model()                      # the pocket model; or a GGUF file, or a checkpoint folder
    print(model.chat("What is the capital of France?"))

    for event in model.stream("Tell me a story about a fox."):
        print(event.text if event.kind == "text" else "", end="")

The library works without the GIL; a seed gives the same answer alone or in a batch.
"""

from ._library import __version__, pocket_model
from ._options import Constraint
from .decisions import Choice, Decision, Decisions, Score, YesNo
from .errors import (
    BrokenFile, Busy, Cancelled, ContextExceeded, Error, FileProblem, InternalError, InvalidRequest, LimitExceeded,
    OutOfMemory, Unsupported,
)
from .events import Answer, Block, Draft, End, Event, Prompt, Stats, Step, Text, Thinking, ToolCall
from .mapper import ChatMapper
from .model import Model
from .stream import Stream

__all__ = [
    "Answer", "Block", "BrokenFile", "Busy", "Cancelled", "ChatMapper", "Choice", "Constraint", "ContextExceeded", "Decision", "Decisions",
    "Draft", "End", "Error", "Event", "FileProblem", "InternalError", "InvalidRequest", "LimitExceeded", "Model",
    "OutOfMemory", "Prompt", "Score", "Stats", "Step", "Stream", "Text", "Thinking", "ToolCall", "Unsupported", "YesNo",
    "__version__", "pocket_model",
]
