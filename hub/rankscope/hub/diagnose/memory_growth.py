"""``memory-growth``: ranks whose memory grows from step to step and does not come back."""

from rankscope.hub.diagnose.growth import Growth, Growths
from rankscope.hub.diagnose.text import ranks_text, size_text
from rankscope.hub.memorylimits import rooms
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

MAX_EVIDENCE = 6


def memory_growth(state: RunState, found: Growths) -> list[Finding]:
    """One finding for all ranks that were ``found`` to grow."""
    ranks = found.ranks
    if not ranks:
        return []
    told = found.steepest(MAX_EVIDENCE)
    fastest = told[0]
    slope = size_text(fastest.bytes_per_step)
    begin = min(growth.from_step for growth in told)
    grows = f"memory of {ranks_text(ranks)} grows by {'up to ' if len(ranks) > 1 else ''}{slope}"
    return [
        Finding(
            kind="memory-growth",
            severity="warning",
            ranks=ranks,
            victims=[],
            step=None,  # it lasts: one incident, not one a step
            since_s=_since_s(state, fastest),
            headline=f"{grows} a step since step {begin} or before",
            evidence=[_told(state, growth) for growth in sorted(told)],
            next="look for what is kept from step to step: a loss appended with its graph (use "
            "loss.item()), a list of outputs, a cache",
        )
    ]


def _told(state: RunState, growth: Growth) -> str:
    told = (
        f"rank {growth.rank}: {size_text(growth.from_bytes)} at step {growth.from_step}, "
        f"{size_text(growth.to_bytes)} at step {growth.to_step}, "
        f"{size_text(growth.bytes_per_step)} a step"
    )
    left = rooms(state, growth.rank)
    if not left:
        return told
    room = min(left, key=lambda one: one.left_bytes)
    full = growth.to_step + int(room.left_bytes / growth.bytes_per_step)
    return f"{told}; {size_text(room.left_bytes)} of {room.what} left, used up at step {full}"


def _since_s(state: RunState, growth: Growth) -> float:
    """How long ago its window began, as far as the newest steps tell."""
    step_s = state.ranks.step_s.item(growth.rank)
    gone = state.ranks.step.item(growth.rank) - growth.from_step
    return max(0.0, gone * step_s) if step_s == step_s else 0.0
