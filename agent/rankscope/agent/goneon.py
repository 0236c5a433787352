"""What this process goes on from, between whoever loads it and whoever tells the hub of it.

They need not know each other: a checkpointer may have loaded a state and save none.
"""

from rankscope.protocol.resumed import Resumed

_newest: Resumed | None = None


def loaded(checkpoint: Resumed) -> None:
    """``checkpoint`` was loaded: what is trained next goes on from it."""
    global _newest
    _newest = checkpoint


def newest() -> Resumed | None:
    return _newest


def ended() -> None:
    """The training that went on from it is over; what comes next in this process begins anew."""
    global _newest
    _newest = None
