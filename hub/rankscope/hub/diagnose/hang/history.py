"""What a rank usually does next: a training loop repeats its collectives step after step. Pure."""

from collections.abc import Sequence

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
