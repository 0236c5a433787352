"""A hang that is known stays where the moment alone would not show it. Pure.

Whoever is not heard for a moment, on a busy machine, has not moved for all that is known. A hub
that was away learns anew what its ranks wait in, which takes a second or two. And when a run that
hangs is ended from outside, as such a run is, no rank is left that waits for another: that it was
ended is true, and not why.
"""

import msgspec
import numpy as np

from rankscope.hub.diagnose import endings
from rankscope.hub.diagnose.hang.scene import FRESH_S, critical_s, moved_s
from rankscope.hub.incidents import Incidents
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ALIVE
from rankscope.hub.state.silence import LOST_S
from rankscope.protocol.shapes import Finding, Incident

HANGS = frozenset(
    {
        "collective-mismatch",
        "collective-stuck",
        "gil-held",
        "group-deadlock",
        "loader-stalled",
        "missing-collective",
        "uneven-data",
    }
)

STANDS = HANGS | {"rank-stopped"}
"""What a run that was ended by whoever had enough of it was ended for."""

ENDING_S = 1.0
"""Between the first rank that a launcher ends and the finding that says so, the others no longer
wait: a hang that closed so shortly before was going on until then."""


def after_absence(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the hang that was known before the hub was away, if nobody has moved."""
    if any(finding.severity == "critical" for finding in findings):
        return findings
    if now_s - state.away_until_s >= LOST_S + critical_s(state):
        return findings  # by now it would have been found again
    alive = np.flatnonzero(live(state))
    if not alive.size or state.ranks.moved_s[alive].max() > state.away_from_s:
        return findings
    held = [
        _still(entry, now_s)
        for entry in incidents.open.values()
        if _was_critical(entry, state.attempt, HANGS) and entry.at_s <= state.away_until_s
    ]
    return _instead(held, findings)


def while_silent(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the hang that was known, while some in it are not heard and none moved."""
    if any(finding.severity == "critical" for finding in findings):
        return findings
    alive = live(state)
    ranks = state.ranks
    silent_s = now_s - ranks.heard_s[: len(alive)]
    there = (silent_s <= LOST_S) | (ranks.process[: len(alive)] == ALIVE)
    last_moved_s = moved_s(state)
    held = []
    for entry in incidents.open.values():
        if not _was_critical(entry, state.attempt, HANGS):
            continue
        named = {*entry.finding.ranks, *entry.finding.victims}
        here = [rank for rank in named if rank < len(alive) and alive[rank]]
        if not here or not there[here].all() or not (silent_s[here] > FRESH_S).any():
            continue
        if last_moved_s[here].max() <= entry.at_s:
            held.append(_still(entry, now_s))
    return _instead(held, findings)


def after_end(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the hang in which the run was ended by whoever had enough of it."""
    end = next((f for f in findings if f.kind == "rank-dead" and _of_all(state, f)), None)
    if end is None or any(finding.kind in STANDS for finding in findings):
        return findings
    ended_s = now_s - end.since_s
    for entry in reversed(incidents.shown):
        until_s = now_s if entry.event == "opened" and entry.id in incidents.open else entry.at_s
        if _was_critical(entry, state.attempt, STANDS) and until_s >= ended_s - ENDING_S:
            return [_still(entry, now_s), *findings]
    return findings


def _instead(held: list[Finding], findings: list[Finding]) -> list[Finding]:
    """``findings`` with the hangs that go on, where there are any, in place of their own."""
    return [*held, *(f for f in findings if f.kind not in HANGS)] if held else findings


def _of_all(state: RunState, end: Finding) -> bool:
    """Whether all ranks were ended as one: asked to, or killed when they did not heed that."""
    if not end.ranks:
        return True
    killed = bool((state.ranks.signal[end.ranks] == endings.SIGKILL).all())
    return killed and not end.victims and len(end.ranks) > 1


def _was_critical(entry: Incident, attempt: int, kinds: frozenset[str]) -> bool:
    finding = entry.finding
    return entry.attempt == attempt and finding.kind in kinds and finding.severity == "critical"


def _still(entry: Incident, now_s: float) -> Finding:
    finding = entry.finding
    if entry.event != "opened":
        return finding
    return msgspec.structs.replace(finding, since_s=max(finding.since_s, now_s - entry.at_s))
