"""Which ports a hub tries when none was asked for.

A hub that was killed comes back on its port, where ranks and clients look for it. Between its end
and its return the kernel must not give that port to whoever asks for any, and a training run's own
process groups ask for dozens: so it is one that the kernel never gives away by itself.
"""

import random
from pathlib import Path

FIRST, END = 15_000, 29_000
"""29400 and 29500 are torchrun's own; from 30000 on they may be Kubernetes'."""
TRIES = 20

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def candidates(ephemeral: str, dice: random.Random) -> list[int]:
    """Ports to try, none twice; empty where the kernel gives away all of them.

    ``ephemeral`` is the text of :data:`EPHEMERAL`: the first and the last port it gives away.
    """
    try:
        first, last = (int(word) for word in ephemeral.split())
    except ValueError:
        return []
    if first <= FIRST:
        begin, end = max(FIRST, last + 1), END
    else:
        begin, end = FIRST, min(END, first)
    return dice.sample(range(begin, end), min(TRIES, max(0, end - begin)))


def here() -> list[int]:
    """:func:`candidates` on this machine."""
    try:
        ephemeral = EPHEMERAL.read_text(encoding="ascii")
    except OSError:
        return []
    return candidates(ephemeral, random.Random())
