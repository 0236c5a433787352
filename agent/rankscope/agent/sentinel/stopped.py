"""Whether a process is stopped, from the letter of its state. Pure."""

from typing import Literal

from rankscope.agent import looks

State = Literal["alive", "stopped", "ended"]

POLL_S = looks.GOING_S
"""How often the letters are read: stopping makes no event that a stranger could wait for. At the
same moments as the ranks look at themselves."""

YOUNG_POLL_S = 0.1
YOUNG_S = 10.0
"""The same for so long after a rank has come, and while there is none: others may be about to come,
and one that ends at once is to be known by then."""


def next_state(before: State, letter: str) -> State:
    """The state after reading ``letter`` from ``/proc/<pid>/stat``.

    ``t`` is a process held by a tracer: for the milliseconds in which a stack is read from
    outside, or under a debugger. It says nothing of whether it was stopped before, so nothing
    changes.
    """
    if letter == "t":
        return before
    return "stopped" if letter == "T" else "alive"
