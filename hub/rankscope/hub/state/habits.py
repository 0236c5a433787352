"""What a rank usually does next: a training loop repeats its collectives step after step. Pure."""

from collections.abc import Sequence

from rankscope.protocol import messages as m

UNKNOWN = -1
MIN_CONTEXT = 3
"""So many of the collectives before must be alike for a guess."""

MAX_CONTEXT = 256


def expected(history: Sequence[int]) -> int:
    """What came next where the longest stretch before was the same, newest of the longest.

    ``history`` is a sequence of signatures. ``UNKNOWN`` ones agree with any, and count for
    nothing. The answer is ``UNKNOWN`` when there is too little to go by.
    """
    end = len(history)
    longest, choice = 0, UNKNOWN
    for place in range(end - 1, MIN_CONTEXT - 1, -1):
        if history[place] == UNKNOWN:
            continue
        alike = 0
        for back in range(1, min(MAX_CONTEXT, place) + 1):
            one, other = history[place - back], history[end - back]
            if one == other:
                alike += one != UNKNOWN
            elif UNKNOWN not in (one, other):
                break
        if alike > longest:
            longest, choice = alike, history[place]
            if longest >= MAX_CONTEXT:
                break
    return choice if longest >= MIN_CONTEXT else UNKNOWN


WENT_ON = "went_on"
"""No collective: the rank has come to the first forward, or the first backward, of a step."""

LEAST_TIMES = 3
"""A call was made so often, its numbers equally far apart, before it can be missed."""


def left_out(course: Sequence[m.Operation]) -> tuple[str, int] | None:
    """The group and number of a call that a rank would have made next, and went past without it.

    ``course`` is what it left behind: calls of its own code, and where it went on.
    """
    kinds: dict[tuple[str, str, str, str], int] = {}
    events = [
        kinds.setdefault((one.group, one.name, one.sizes, one.dtype), len(kinds)) for one in course
    ]
    end = len(course)
    while end and not course[end - 1].group:
        end -= 1
    for place in range(end, len(course)):
        missed = expected(events[:place])
        if missed == UNKNOWN or missed == events[place]:
            continue
        numbers = [one.seq for one, kind in zip(course, events, strict=True) if kind == missed]
        group = next(group for (group, *_), kind in kinds.items() if kind == missed)
        if not group or len(numbers) < LEAST_TIMES:
            return None
        apart = numbers[-1] - numbers[-2]
        even = apart > 0 and apart == numbers[-2] - numbers[-3]
        return (group, numbers[-1] + apart) if even else None
    return None
