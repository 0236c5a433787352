"""What an operator asked for, and a pause."""

from rankscope.protocol.shapes.base import Shape


class Command(Shape):
    """What an operator asked for, in work or over."""

    request: int
    """Its number; 0 when it was refused at once."""
    command: str
    """``checkpoint``, ``checkpoint-and-stop``, ``stop``, ``pause``, ``resume`` or ``cancel``."""
    author: str
    """Who asked; ``a signal on rank 3`` where it was no operator."""
    age_s: float
    """Since it was asked for; None of the times below runs before that."""
    state: str
    """In work: ``waiting`` (for all ranks to hear of it), ``agreeing``, ``agreed`` (on ``step``),
    ``arrived``, ``paused``, ``saving``. Over: ``done``, ``refused``, ``given-up``, ``cancelled``.
    """
    text: str
    """In words: what it waits for, or what came of it."""
    step: int | None = None
    """The boundary that the ranks agreed on: the step it comes after."""
    ended_age_s: float | None = None
    """Since it was over; None while it is in work."""


class Paused(Shape):
    """The ranks stand at a boundary because an operator wanted it."""

    request: int
    author: str
    step: int
    """The step it comes after."""
    since_s: float
    expires_s: float | None
    """How long until it ends by itself."""
    ranks: list[int]
    """Those that stand there."""
