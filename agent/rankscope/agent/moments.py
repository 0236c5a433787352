"""The moments at which what belongs to one node wakes up. Pure.

They are of the node's own clock, so that all ranks and their sentinel share them. What looking
takes from training it takes from all ranks at once, which wait for each other anyway; and the hub
finds at once what came of it.
"""


def until_next_s(every_s: float, now: float) -> float:
    """From ``now`` on the monotonic clock to the next moment of those that are ``every_s`` apart.

    One that is nearer than a quarter of that is passed by: two looks in a row show nothing new.
    """
    left_s = every_s - now % every_s
    return left_s if left_s >= every_s / 4 else left_s + every_s
