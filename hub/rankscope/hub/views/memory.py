"""The view ``memory``: what each rank takes, over the whole run, and when it will be full."""

import numpy as np

from rankscope.hub import memorylimits
from rankscope.hub.diagnose.growth import Growth, Growths, growths
from rankscope.hub.memorypredicted import Prediction, predicted
from rankscope.hub.runstate import as_of_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Floats, Integers
from rankscope.hub.state.memory import BUCKETS
from rankscope.hub.views.knowledge import Knowledge, aged
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

MAX_ROWS = 512
KINDS = frozenset(
    {"memory-growth", "out-of-memory-forecast", "memory-over-budget", "memory-fragmentation"}
)


def memory(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.MemoryView:
    """All ranks, or those of a large world that take most; those that grow come first then."""
    state = know.state
    as_of = as_of_s(state, run_state(state, now_s), now_s)
    growing = growths(state)
    known = [rank for rank in range(state.size()) if rank in state.words.memory]
    shown = _worst(state, known, growing)
    strides = state.memory.stride[shown]
    stride = int(strides.max(initial=1))
    spans = {rank: _spans(state, rank, stride) for rank in shown}
    filled = _filled(spans)
    expected = {rank: predicted(state, rank) for rank in shown}
    return shapes.MemoryView(
        run=state.run,
        steps=_steps(state, shown, filled, stride),
        ranks=[
            _row(
                state,
                rank,
                growing.get(rank),
                _without_gaps(spans[rank][filled]),
                expected[rank],
            )
            for rank in shown
        ],
        left_out=len(known) - len(shown),
        findings=[one for one in aged(know, as_of) if one.kind in KINDS],
        prediction="; ".join(dict.fromkeys(one.words for one in expected.values() if one)),
    )


def _worst(state: RunState, known: list[int], growing: Growths) -> list[int]:
    if len(known) <= MAX_ROWS:
        return known

    def badness(rank: int) -> tuple[bool, int]:
        return growing.get(rank) is not None, int(state.ranks.memory_peak_bytes[rank])

    return sorted(sorted(known, key=badness, reverse=True)[:MAX_ROWS])


def _spans(state: RunState, rank: int, stride: int) -> Floats:
    """The rank's history in spans of ``stride`` steps, which is at least its own."""
    spans = state.memory.spans[rank]
    fold = stride // int(state.memory.stride[rank])
    folded: Floats = np.fmax.reduce(spans.reshape(BUCKETS // fold, fold), axis=1)
    return folded


def _filled(spans: dict[int, Floats]) -> Integers:
    """The spans in which any of the ranks has a reading."""
    known: set[int] = set()
    for one in spans.values():
        known.update(np.flatnonzero(~np.isnan(one)).tolist())
    return np.array(sorted(known), dtype=np.int64)


def _without_gaps(values: Floats) -> list[int]:
    """A span without a reading takes the one before it, or else the first there is."""
    known = np.flatnonzero(~np.isnan(values))
    if not known.size:
        return []
    last = np.maximum.accumulate(np.where(np.isnan(values), known[0], np.arange(len(values))))
    return [int(value) for value in values[last].tolist()]


def _steps(state: RunState, shown: list[int], filled: Integers, stride: int) -> list[int]:
    """The last step of each span, or the newest one."""
    start = int(state.ranks.start_step[shown].min()) if shown else 0
    newest = int(state.ranks.step[shown].max()) if shown else 0
    return [min(start + (index + 1) * stride, newest) for index in filled.tolist()]


def _row(
    state: RunState,
    rank: int,
    growth: Growth | None,
    history: list[int],
    expected: Prediction | None,
) -> shapes.MemoryRow:
    memory = state.words.memory[rank]
    left = memorylimits.rooms(state, rank)
    full = None
    if growth is not None and left:
        least = min(room.left_bytes for room in left)
        full = growth.to_step + int(least / growth.bytes_per_step)
    return shapes.MemoryRow(
        rank=rank,
        host=state.host(rank),
        resident_bytes=memory.resident_bytes,
        peak_resident_bytes=memory.peak_resident_bytes,
        allocated_bytes=memory.allocated_bytes,
        reserved_bytes=memory.reserved_bytes,
        peak_allocated_bytes=memory.peak_allocated_bytes,
        limit_bytes=memorylimits.limit_bytes(state, rank),
        growth_bytes_per_step=_slope(state, rank, growth),
        full_at_step=full,
        history_bytes=history,
        state_bytes=memory.state_bytes,
        predicted_state_bytes=None if expected is None else expected.state_bytes,
    )


def _slope(state: RunState, rank: int, growth: Growth | None) -> float | None:
    """0 for a rank that does not grow; None before there are readings enough to tell."""
    if growth is not None:
        return growth.bytes_per_step
    return 0.0 if int((~np.isnan(state.memory.bytes[rank])).sum()) >= 9 else None
