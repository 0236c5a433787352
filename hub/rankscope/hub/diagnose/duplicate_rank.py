"""``duplicate-rank``: a second process says it is a rank that is there already."""

from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

MAX_FINDINGS = 8


def duplicate_rank(state: RunState, now_s: float) -> list[Finding]:
    """One finding a rank; the first process is the one that is shown."""
    findings = []
    for rank, rival in sorted(state.words.rivals.items())[:MAX_FINDINGS]:
        first = f"pid {state.ranks.pid.item(rank)} on {state.host(rank)}"
        second = f"pid {rival.pid} on {rival.host}"
        findings.append(
            Finding(
                kind="duplicate-rank",
                severity="info",
                ranks=[rank],
                victims=[],
                step=None,  # it lasts: one incident, not one a step
                since_s=now_s - rival.at_s,
                headline=f"two processes say they are rank {rank}: {first} and {second}",
                evidence=[f"what {second} says is left out as long as {first} is there"],
                next="give each script a run of its own: rankscope run -- CMD for each, or torchrun"
                " for ranks of one job",
            )
        )
    return findings
