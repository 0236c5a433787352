"""What a rank's agent says of its own looking: what it cannot look at, and how often. Pure."""

from rankscope.hub.state import RunState

NOT_COVERED = "numerics_not_covered"
"""The fact in which an agent names what it cannot look at, one thing after the other; ``; ``."""

LARGE_EVERY = "numerics_large_every"
"""The fact that large gradients are read at every so many steps only."""

MOST = 1 << 20
"""A longer interval is none."""


def not_covered(state: RunState, rank: int) -> list[str]:
    return [text for text in _facts(state, rank).get(NOT_COVERED, "").split("; ") if text]


def large_every(state: RunState, rank: int) -> int:
    """1: they are read at every step, as far as is known."""
    told = _facts(state, rank).get(LARGE_EVERY, "")
    if not (told.isascii() and told.isdigit() and len(told) < len(str(MOST))):
        return 1
    return max(1, int(told))


def every_text(every: int) -> str:
    """``every 8th step``."""
    return f"every {every}{'nd' if every == 2 else 'th'} step"


def _facts(state: RunState, rank: int) -> dict[str, str]:
    identity = state.ranks.identity.item(rank)
    return dict(state.words.identities.values[identity].facts) if identity >= 0 else {}
