"""What the threads of a rank are in."""

from typing import Annotated

from msgspec import Meta

from rankscope.protocol import limits
from rankscope.protocol.messages.base import Count, FromRank, Message, Name, Text
from rankscope.protocol.messages.beat import Phase


class Frame(Message, frozen=True):
    """One frame of a stack; ``file`` as the interpreter knows it. ``line`` 0: not known."""

    file: Text
    line: Count
    function: Text


class Thread(Message, frozen=True):
    name: Name
    main: bool
    """Whether it is the one that trains."""
    frames: Annotated[tuple[Frame, ...], Meta(max_length=limits.MAX_FRAMES)]
    """The innermost first."""
    holds_gil: bool | None = None
    """None where that cannot be seen."""


class Stacks(FromRank, frozen=True):
    """What the threads of a rank are in, the training thread first; from within the process."""

    why: Name
    """``asked``, ``stalled`` or ``raised``."""
    source: Text
    """``file:line in function`` of the innermost frame of the user's own code in the training
    thread; empty when there is none."""
    threads: Annotated[tuple[Thread, ...], Meta(max_length=limits.MAX_THREADS)]
    step: Count = 0
    """The last completed step."""
    phase: Phase = Phase.OTHER
