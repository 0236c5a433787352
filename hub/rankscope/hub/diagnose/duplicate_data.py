"""``duplicate-data``: ranks that read the same batches, step after step."""

import numpy as np

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

LEAST_STEPS = 3
"""Steps in a row with the same data: less may be chance in a small data set."""


def duplicate_data(state: RunState, now_s: float) -> list[Finding]:
    """One finding for all ranks that share theirs with another one."""
    columns = state.numerics.columns
    size = state.size()
    twins = columns.twin[:size]
    shared = (twins >= 0) & (columns.twin_steps[:size] >= LEAST_STEPS)
    ranks = np.flatnonzero(shared)
    if not ranks.size:
        return []
    parties: dict[int, list[int]] = {}
    for rank, twin in zip(ranks.tolist(), twins[ranks].tolist(), strict=True):
        parties.setdefault(twin, []).append(rank)
    step = int(columns.twin_since[ranks].min())
    steps = int(columns.twin_steps[ranks].max())
    everybody = ranks.size == np.count_nonzero(live(state)) and len(parties) == 1
    named = ranks.tolist()
    who = "all ranks" if everybody else ranks_text(named)
    return [
        Finding(
            kind="duplicate-data",
            severity="warning",
            ranks=named,
            victims=[],
            step=step,
            since_s=_since_s(state, step, now_s),
            headline=f"{who} read the same data"
            + (" in pairs" if len(parties) > 1 else "")
            + f" since step {step}",
            evidence=[
                f"{ranks_text(party)}: the same fingerprint of the input batch in {steps} steps "
                "in a row"
                for party in list(parties.values())[:4]
            ],
            next="look at the sampler's rank and world size (DistributedSampler, set_epoch)",
        )
    ]


def _since_s(state: RunState, step: int, now_s: float) -> float:
    entry = state.history.entries.get(step)
    if entry is None or not np.isfinite(entry.done_s):
        first_s = state.first_heard_s
        return 0.0 if first_s is None else max(0.0, now_s - first_s)
    return max(0.0, now_s - entry.done_s)
