"""When the sending thread looks at what the training thread does. Pure.

A look costs the better part of a millisecond, half of it because it finds the caches cold, and as
much again in the hub. While training goes on, the next look tells what this one would: then looks
are seldom, and in between there is only a glance at whether anything was noted. A thread that
stands is looked at often, for then it is to be known soon, and from when on.
"""

from rankscope.agent import moments
from rankscope.protocol import limits

STANDING_S = 0.1
"""Between two looks at a thread that stands, and the least after which it is said to."""

GLANCE_S = 0.225
"""Between two glances at a thread that goes on."""

GOING_S = 0.45
"""Between two looks at it, two glances apart. Not more: half of that is what it takes on average
until something that happens in a rank can be seen, which is to be less than 0.3 s; and a hub misses
a rank of which it hears nothing for 0.5 s. While its memory rises there is a look in place of each
glance: whether it grows is told by the number of readings."""

STANDS_STEPS = 0.5
"""A thread whose steps take long has to have stood for so much of one, too."""


def stands(now: float, noted_s: float, step_s: float) -> bool:
    """Whether a thread that noted something last at ``noted_s`` stands; its steps take ``step_s``.

    Where no step was seen yet that is 0.
    """
    return now - noted_s >= max(STANDING_S, STANDS_STEPS * step_s)


def every_s(world_size: int, *, going: bool, rises: bool = False) -> float:
    """Between two looks; stretched on a large world, so that the hub keeps up.

    ``going``: the thread does not stand; ``rises``: its process's memory does.
    """
    shortest_s = STANDING_S if not going else GLANCE_S if rises else GOING_S
    return min(limits.BEAT_INTERVAL_S, max(shortest_s, world_size / 16384))


def wait_s(now: float, every_s: float, step_s: float) -> float:
    """How long to sleep between looks that are ``every_s`` apart: until the next of them, or until
    a glance before it, where that could show that the thread stands."""
    glances = every_s > GLANCE_S and STANDS_STEPS * step_s < every_s
    return moments.until_next_s(GLANCE_S if glances else every_s, now)


def is_due(now: float, every_s: float, looked_s: float) -> bool:
    """Whether, of a thread that goes on, the moment of a look has come, and not of a glance."""
    if now - looked_s >= every_s:
        return True
    # A little early, or late by as much as is between two glances, is that moment yet.
    return (now + GLANCE_S / 4) % every_s < GLANCE_S
