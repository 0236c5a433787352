"""What is asked of the ranks, as it lies in torch's store for all of them to read."""

from typing import Final

import msgspec

CHECKPOINT: Final = "checkpoint"
CHECKPOINT_AND_STOP: Final = "checkpoint-and-stop"
STOP: Final = "stop"
PAUSE: Final = "pause"

AGREED_ON: Final = frozenset({CHECKPOINT, CHECKPOINT_AND_STOP, STOP, PAUSE})
"""What the ranks agree on a boundary for."""

TOGETHER: Final = AGREED_ON - {CHECKPOINT}
"""What no rank may do unless all do: they meet at the boundary before any acts."""

WHILE_PAUSED: Final = AGREED_ON - {PAUSE}
"""What is done where the ranks stand, when they do so already."""

EXPIRES_S = 600.0


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One turn's request."""

    number: int
    command: str
    author: str
    expires_s: float = EXPIRES_S
    """From when a rank hears of it, until it is given up unless the ranks have agreed."""
    lasts_s: float = 0.0
    """Of a pause, until it ends by itself."""
    signal: int = 0
    """That brought it about; 0 where none did."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def parse(raw: bytes) -> Request:
    """Raises :class:`msgspec.DecodeError`."""
    return msgspec.json.decode(raw, type=Request)
