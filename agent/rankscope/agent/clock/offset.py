"""The offset from this process's clock to the hub's, from pings and their pongs. Pure.

The estimate is that of the exchange with the smallest round trip among the last ones (as NTP's
clock filter, RFC 5905 section 10, does): queueing only ever lengthens a round trip.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Exchange(NamedTuple):
    """A ping that left at ``sent_s`` and whose pong (stamped ``hub_s``) came at ``received_s``."""

    sent_s: float
    hub_s: float
    received_s: float


class Offset(NamedTuple):
    """Hub clock minus own clock, true to within ``error_s`` (half the round trip)."""

    offset_s: float
    error_s: float


KEPT = 16
"""How many exchanges are looked at; at one every 2 s that is half a minute of drift."""


def estimate(exchanges: Iterable[Exchange]) -> Offset | None:
    """The best offset in ``exchanges``; None when there is none (or only impossible ones)."""
    best: Offset | None = None
    for sent_s, hub_s, received_s in exchanges:
        error_s = (received_s - sent_s) / 2
        if error_s >= 0 and (best is None or error_s < best.error_s):
            best = Offset(hub_s - (sent_s + error_s), error_s)
    return best
