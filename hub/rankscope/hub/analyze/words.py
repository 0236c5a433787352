"""A recorder's entry in the words of the wire: the same ones an agent uses."""

from pathlib import PurePosixPath
from typing import Any

from rankscope.hub.analyze.files import Entry, Frame
from rankscope.protocol.elementtypes import DTYPES

NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/torch/", "<frozen", "<string>")
MAX_SIZES_CHARS = 200
MAX_SOURCE_CHARS = 256


def source(frames: list[Frame]) -> str:
    """``file:line in function`` of the innermost frame of the user's own code; empty: none."""
    for frame in frames:
        name = frame.filename
        if any(part in name for part in NOT_THE_USERS) or "/lib/python3" in name:
            continue
        if frame.line > 0:
            return f"{PurePosixPath(name).name}:{frame.line} in {frame.name}"[:MAX_SOURCE_CHARS]
    return ""


def sizes(entry: Entry) -> str:
    """``[4] -> [2, 4]``; empty of an operation without tensors."""
    if not entry.input_sizes and not entry.output_sizes:
        return ""
    text = f"{_shapes(entry.input_sizes)} -> {_shapes(entry.output_sizes)}"
    return text if len(text) <= MAX_SIZES_CHARS else text[: MAX_SIZES_CHARS - 1] + "…"


def _shapes(shapes: Any) -> str:
    if not isinstance(shapes, list | tuple) or not shapes:
        return "none"
    text = ", ".join(str(list(shape)) for shape in shapes[:4] if isinstance(shape, list | tuple))
    return text if len(shapes) <= 4 else f"{text}, and {len(shapes) - 4} more"


def dtype(entry: Entry) -> str:
    names = entry.input_dtypes or entry.output_dtypes
    return ", ".join(dict.fromkeys(DTYPES.get(name, name.lower()) for name in names))[:256]


def is_over(entry: Entry) -> bool:
    """gloo never leaves the state "scheduled"; there ``retired`` is the flag of completion."""
    return entry.retired or entry.state == "completed"
