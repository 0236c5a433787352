"""``gpu-spinning``: all GPUs are busy and no rank advances: kernels wait for each other."""

import numpy as np

from rankscope.hub.diagnose.text import age_text, step_in_work
from rankscope.hub.liveness import live
from rankscope.hub.rankgpus import index_of
from rankscope.hub.stall import stalled_s
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

LASTS_S = 5.0


def gpu_spinning(state: RunState, known: list[Finding], now_s: float) -> list[Finding]:
    """Where nothing that is ``known`` tells more of the stall."""
    if any(finding.severity == "critical" for finding in known):
        return []
    age_s = stalled_s(state, now_s)
    if age_s is None:
        return []
    waiting = np.flatnonzero(live(state)).tolist()
    begins = []
    for rank in waiting:
        index = index_of(state, rank)
        gpu = None if index is None else state.gpus.watched.get((state.host(rank), index))
        if gpu is None or gpu.busy_since_s is None:
            return []
        begins.append(gpu.busy_since_s)
    busy_s = now_s - max(begins, default=now_s)
    if busy_s < LASTS_S:
        return []
    return [
        Finding(
            kind="gpu-spinning",
            severity="critical",
            ranks=[],
            victims=waiting,
            step=min(step_in_work(state, rank) for rank in waiting),
            since_s=min(age_s, busy_s),
            headline=f"no rank has moved for {age_text(age_s)}, and all {len(waiting)} GPUs are "
            "busy: kernels that wait for each other look like this",
            evidence=[f"every rank's GPU has been at 90 % or more for {age_text(busy_s)}"],
            next="see where the ranks are: rankscope stacks, and rankscope collectives",
        )
    ]
