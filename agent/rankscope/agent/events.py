"""What the training thread notes down: small tuples ``(code, t_s, …)``, appended and nothing more.

Between two hooks lies the training itself, which empties the processor's caches: every line of
ours that runs there is read from memory anew. So the hooks only note what happened and when, and
the sending thread works it out later (:mod:`rankscope.agent.digest`).
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

Event = tuple[Any, ...]

BEGIN_DATA: Final = 0
END_DATA: Final = 1
BEGIN_FORWARD: Final = 2
"""``(…, trains)``: of the first model; ``trains`` is False under ``no_grad``."""
BEGIN_FURTHER_FORWARD: Final = 3
"""``(…, trains)``: of a further model."""
END_FORWARD: Final = 4
BEGIN_BACKWARD: Final = 5
END_BACKWARD: Final = 6
BEGIN_OPTIMIZER: Final = 7
END_OPTIMIZER: Final = 8
STEPPED: Final = 9
"""``(…, note)``: the first optimizer has stepped, in a loop that never called ``end_step``."""
END_STEP: Final = 10
"""``(…, note)``: ``end_step`` was called. The note is a tuple of a StepNote's fields."""
LATE: Final = 11
"""``(…, number, values)``: what came off the device of the step noted under that number."""
RAISED: Final = 12
"""``(…, fields)`` of the message, but for step and phase."""
FAULT: Final = 13
"""``(…, probe, error)``."""
CLOSED: Final = 14
PAUSED: Final = 22
"""``(…, reason)``."""
SIGNS: Final = 15
"""``(…, number, signs, looked)``: of the step whose note has, or will have, that number."""
CHECKSUMS: Final = 19
"""``(…, check, values, altered)``: of this rank's parameters after an update."""
WAITED: Final = 16
"""``(…, took_s)``: a collective was waited for, from then on for so long."""
COMPUTED: Final = 17
"""All gradients of a backward are computed; what comes until its end waits for other ranks."""
DATA_OVER: Final = 18
"""The loader that was read has ended."""
PARAMETER_NORMS: Final = 20
"""``(…, number, norms, left_out)``: of the step whose note has, or will have, that number."""
HELD: Final = 21
"""The training thread has stood at a boundary until now, because an operator wanted it."""

MAX_EVENTS = 1 << 16
"""Kept when the sending thread does not come to read them: thousands of steps."""


class StepNote(NamedTuple):
    """What was known when a step ended. Numbers that are on a CUDA device are left out."""

    number: int
    """Counts the notes from 1: a gap tells how many were lost."""
    given: float | None
    """The loss given to ``end_step``."""
    outputs: Sequence[float]
    """Scalars that the model returned, one a microbatch."""
    backwards: Sequence[float]
    """Scalars at which backward started, one a microbatch."""
    grad_norm: float | None
    sharded: bool | None
    """Whether the norm (also one that comes late) is of a shard; None where there is no norm."""
    tokens: int | None
    spent_s: float
    """Bookkeeping on the training thread since attaching."""
    kernel_s: float
    """Norm kernels on the training thread since attaching."""
    more: "dict[str, Any] | None" = None
    """Further fields of the step's record, by name."""
