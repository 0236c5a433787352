"""``memory-fragmentation``: the allocator keeps far more of the GPU than the training ever used.

What is reserved and was never allocated at once lies in pieces that fit no request, or is left from
something larger that is over. Nobody else can have it, and a request may fail while it is there.
"""

from rankscope.hub.diagnose.text import ranks_text, size_text
from rankscope.hub.state import RunState
from rankscope.protocol import messages as m
from rankscope.protocol.shapes import Finding

LEAST_BYTES = 512 << 20
LEAST_SHARE = 0.3
"""It is told when so much, and this share of what is reserved, is above the peak of allocation."""

NEARLY_FULL = 0.85
"""Beyond this share of the device it may soon fail: no notice, a warning."""

WARM_STEPS = 20
"""Early in a run the allocator has not yet settled, and autotuners have tried what is larger."""

MAX_EVIDENCE = 6


def lost_bytes(memory: m.Memory) -> int:
    """What is reserved above the most that was ever allocated; 0 where that is not known."""
    if memory.reserved_bytes is None or memory.peak_allocated_bytes is None:
        return 0
    return max(0, memory.reserved_bytes - memory.peak_allocated_bytes)


def fragmented(state: RunState) -> list[int]:
    """The ranks of which it is to be told, ascending."""
    steps, starts = state.ranks.cells.step, state.ranks.cells.start_step
    found = []
    for rank, memory in state.words.memory.items():
        if memory.reserved_bytes is None:
            continue
        lost = lost_bytes(memory)
        if lost < LEAST_BYTES or lost < LEAST_SHARE * memory.reserved_bytes:
            continue
        if steps[rank] - starts[rank] >= WARM_STEPS:
            found.append(rank)
    return sorted(found)


def memory_fragmentation(state: RunState, ranks: list[int]) -> list[Finding]:
    """One finding for all ``ranks`` that were found to be :func:`fragmented`."""
    if not ranks:
        return []
    told = sorted(ranks, key=lambda rank: -lost_bytes(state.words.memory[rank]))[:MAX_EVIDENCE]
    most = size_text(lost_bytes(state.words.memory[told[0]]))
    whose = f"on {ranks_text(ranks)} {'up to ' if len(ranks) > 1 else ''}{most}"
    return [
        Finding(
            kind="memory-fragmentation",
            severity="warning" if any(_nearly_full(state, rank) for rank in ranks) else "info",
            ranks=ranks,
            victims=[],
            step=None,  # it lasts: one incident, not one a step
            since_s=0.0,
            headline=f"{whose} of GPU memory is reserved and was never in use at once",
            evidence=[_told(state, rank) for rank in sorted(told)],
            next="start with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or keep the sizes "
            "of batches alike",
        )
    ]


def _nearly_full(state: RunState, rank: int) -> bool:
    memory = state.words.memory[rank]
    total, reserved = memory.device_total_bytes, memory.reserved_bytes
    return total is not None and reserved is not None and reserved >= NEARLY_FULL * total


def _told(state: RunState, rank: int) -> str:
    memory = state.words.memory[rank]
    of = memory.device_total_bytes
    return (
        f"rank {rank}: {size_text(memory.reserved_bytes or 0)} reserved, at most "
        f"{size_text(memory.peak_allocated_bytes or 0)} allocated"
        + ("" if of is None else f", of {size_text(of)}")
    )
