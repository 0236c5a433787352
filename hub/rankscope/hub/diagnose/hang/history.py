"""What a rank usually does next: a training loop repeats its collectives step after step. Pure."""

from collections.abc import Sequence

UNKNOWN = -1
MIN_CONTEXT = 3
"""So many of the collectives before must be alike for a guess."""

MAX_CONTEXT = 256


def expected(history: Sequence[int]) -> int:
    """What came next where the longest stretch before was the same, newest of the longest.

    ``history`` is a sequence of signatures; ``UNKNOWN`` when there is nothing to go by.
    """
    end = len(history)
    longest, choice = 0, UNKNOWN
    for place in range(end - 1, MIN_CONTEXT - 1, -1):
        if history[place - 1] != history[end - 1]:
            continue
        context = 1
        most = min(MAX_CONTEXT, place)
        while context < most and history[place - 1 - context] == history[end - 1 - context]:
            context += 1
        if context > longest:
            longest, choice = context, history[place]
            if longest >= MAX_CONTEXT:
                break
    return choice if longest >= MIN_CONTEXT else UNKNOWN
