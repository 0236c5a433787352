"""Free ports for tests that have to name one before it is bound.

Not from those that the kernel gives to whoever asks for any: until a program has started and bound
its port, another would have it, of all that open sockets beside a test. Each process that runs
tests has a range of its own.
"""

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Iterator
from functools import cache

FIRST, RANGES, PORTS = 10_000, 16, 300
"""Below the ports of hubs (``rankscope.hub.ports``)."""


@cache
def _mine() -> Iterator[int]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    number = int(worker[2:]) if worker else RANGES - 1
    begin = FIRST + PORTS * (number % RANGES)
    offset = random.SystemRandom().randrange(PORTS)
    return itertools.cycle(begin + (offset + one) % PORTS for one in range(PORTS))


def free_port() -> int:
    """A port of the loopback address that nobody has."""
    for port in itertools.islice(_mine(), PORTS):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")
