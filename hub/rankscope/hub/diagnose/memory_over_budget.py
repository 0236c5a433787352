"""``memory-over-budget``: a rank holds more parameters, gradients and optimizer state than the
table of memory says for its model and its way of sharding: part of it is not sharded.
"""

from rankscope.hub.diagnose.text import ranks_text, size_text
from rankscope.hub.memorypredicted import predicted
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

LEAST_BYTES = 64 << 20
LEAST_SHARE = 0.25
"""It is told when so much, and this share of what is predicted, is held beyond that: shards are
padded, and the small parameters of a large world are not worth a word."""

MAX_EVIDENCE = 6


def over_budget(state: RunState) -> list[int]:
    """The ranks of which it is to be told, ascending."""
    predictions: dict[int, float] = {}
    identities = state.ranks.cells.identity
    found = []
    for rank, memory in state.words.memory.items():
        held = memory.state_bytes
        if held is None or held < LEAST_BYTES:
            continue
        identity = identities[rank]
        if identity not in predictions:  # ranks of one identity have one prediction
            expected = predicted(state, rank)
            predictions[identity] = -1.0 if expected is None else expected.state_bytes
        budget = predictions[identity]
        if budget > 0 and held - budget >= max(LEAST_BYTES, LEAST_SHARE * budget):
            found.append(rank)
    return sorted(found)


def memory_over_budget(state: RunState, ranks: list[int]) -> list[Finding]:
    """One finding for all ``ranks`` that were found :func:`over_budget`."""
    if not ranks:
        return []
    expected = predicted(state, ranks[0])
    if expected is None:
        return []
    held = {rank: state.words.memory[rank].state_bytes or 0 for rank in ranks}
    told = sorted(ranks, key=lambda rank: -held[rank])[:MAX_EVIDENCE]
    verb = "holds" if len(ranks) == 1 else "hold up to"
    budget = size_text(expected.state_bytes)
    return [
        Finding(
            kind="memory-over-budget",
            severity="warning",
            ranks=ranks,
            victims=[],
            step=None,  # it lasts: one incident, not one a step
            since_s=0.0,
            headline=f"{ranks_text(ranks)} {verb} {size_text(held[told[0]])} of parameters, "
            f"gradients and optimizer state, and the budget says {budget}",
            evidence=[f"budget: {expected.words}"]
            + [f"rank {rank}: {size_text(held[rank])}" for rank in sorted(told)],
            next="see which modules are not sharded: rankscope memory shows what each rank holds",
        )
    ]
