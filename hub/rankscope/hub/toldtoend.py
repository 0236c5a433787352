"""What else is said of a run that somebody asked to end: what was wrong when it was ended, and what
it goes on from. Pure.

A run whose numbers are spoilt, say, does not end by that; whoever has enough of it ends it. That it
was ended, and by what, and what was wrong then, are both the verdict.
"""

import msgspec

from rankscope.hub.diagnose import gravest
from rankscope.hub.diagnose.rank_dead import INTERRUPTED
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import STANDS, Finding

BEFORE = "; before that: "
EXPLAINS = frozenset({*STANDS, "rank-dead", "exception", INTERRUPTED})
"""Findings that say themselves how the run ended, or why."""


def told_to_end(state: RunState, findings: list[Finding]) -> list[Finding]:
    """``findings`` with that in the verdict and in the finding that it was asked to end."""
    end = next((finding for finding in findings if finding.kind == INTERRUPTED), None)
    if end is None:
        return findings
    worst = gravest(findings)
    assert worst is not None
    spoilt = [f.step for f in findings if f.kind.startswith("nonfinite") and f.step is not None]
    goes_on = _goes_on(state, min(spoilt, default=None))
    next_ = "; ".join(filter(None, (end.next, goes_on)))
    told = msgspec.structs.replace(end, next=next_)
    return [told if f is end else _ended(f, end, goes_on) if f is worst else f for f in findings]


def _ended(finding: Finding, end: Finding, goes_on: str) -> Finding:
    if finding.kind in EXPLAINS or finding.severity != "critical":
        return finding
    headline = f"{end.headline}{BEFORE}{finding.headline}"
    evidence = [*finding.evidence, *filter(None, (goes_on,))]
    return msgspec.structs.replace(finding, headline=headline, evidence=evidence)


def _goes_on(state: RunState, spoilt: int | None) -> str:
    """From which checkpoint it can, as far as is known; empty where nothing is known of any.
    ``spoilt`` is the first step in which numbers were not finite."""
    newest = state.saves.back() or state.saves.resumed
    if newest is None:
        saves = any(row.saver for row in state.controls.rows.values())
        return "nothing was saved, so it would begin anew" if saves else ""
    usable = state.saves.finite() if spoilt is None else state.saves.finite(spoilt)
    if usable is not None:
        return (
            f"the newest checkpoint to go on from is of step {usable.step}: rankscope checkpoints"
        )
    holds = "holds" if newest.notfinite else "may hold"
    return f"its newest checkpoint, of step {newest.step}, {holds} numbers that are not finite"
