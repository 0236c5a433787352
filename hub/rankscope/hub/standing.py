"""A hang that is known stays where the moment alone would not show it. Pure.

Whoever is not heard for a moment, on a busy machine, has not moved for all that is known. A hub
that was away learns anew what its ranks wait in, which takes a second or two. And when a run that
hangs is ended from outside, as such a run is, no rank is left that waits for another: that it was
ended is true, and not why.
"""

import msgspec
import numpy as np

from rankscope.hub.diagnose import endings
from rankscope.hub.diagnose.hang.scene import FRESH_S, critical_s
from rankscope.hub.diagnose.rank_dead import INTERRUPTED, launchers_end, signals_that_ended
from rankscope.hub.diagnose.rank_stopped import with_those_killed
from rankscope.hub.incidents import Incidents
from rankscope.hub.liveness import live
from rankscope.hub.runstate import ENDED, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.moved import moved_s
from rankscope.hub.state.ranks import ALIVE, FINISHED, UNOBSERVED
from rankscope.hub.state.silence import LOST_S
from rankscope.protocol.shapes import HANGS, STANDS, Finding, Incident

ENDS = ("rank-dead", INTERRUPTED)

WHILE_IT_HUNG = " while it hung: "

ENDING_S = 1.0
"""Between the first rank that a launcher ends and the finding that says so, the others no longer
wait: a hang that closed so shortly before was going on until then."""


def after_absence(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the hang that was known before the hub was away, if nobody has moved."""
    if not incidents.open or any(finding.severity == "critical" for finding in findings):
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
    if not incidents.open or any(finding.severity == "critical" for finding in findings):
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


def while_ending(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the hang that was known, from the first of its ranks that ends until the
    run is over: those that have ended wait no more, and how they ended is known only later.

    Not once a rank has moved, has ended in order or goes on unobserved: it did what it was waited
    for.
    """
    if not incidents.open or any(finding.severity == "critical" for finding in findings):
        return findings
    if run_state(state, now_s) in ENDED:
        return findings
    ranks, size = state.ranks, state.size()
    over = ranks.over()[:size]
    if not over.any():
        return findings
    if not live(state).any() and any(finding.kind in ENDS for finding in findings):
        return findings  # it is known how they ended: that is said with it
    ends_s = np.fmin(ranks.goodbye_s, ranks.ended_s)[:size]
    moved = np.where(over, np.nan, moved_s(state)[:size])
    in_order = np.isin(ranks.goodbye[:size], (FINISHED, UNOBSERVED))
    done = over & in_order & (ranks.signal[:size] == 0)
    moved[done] = ends_s[done]
    held = []
    for entry in incidents.open.values():
        if not _was_critical(entry, state.attempt, STANDS):
            continue
        named = [rank for rank in (*entry.finding.ranks, *entry.finding.victims) if rank < size]
        if not (ends_s[named] >= entry.at_s - ENDING_S).any():
            continue
        if not (moved[named] > entry.at_s).any():
            held.append(_still(entry, now_s))
    return _instead(held, findings)


def after_end(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the hang in which the run was ended by whoever had enough of it."""
    end = next((f for f in findings if f.kind in ENDS and _of_all(state, f)), None)
    if end is None or any(finding.kind in STANDS for finding in findings):
        return findings
    ended_s = now_s - end.since_s
    for entry in reversed(incidents.shown):
        until_s = now_s if entry.event == "opened" and entry.id in incidents.open else entry.at_s
        if _was_critical(entry, state.attempt, STANDS) and until_s >= ended_s - ENDING_S:
            hang = _still(entry, now_s)
            killed = [one for one in end.ranks if endings.stopped_before(state, ended_s)[one]]
            if hang.kind == "rank-stopped" and not set(killed) <= set(hang.ranks):
                hang = with_those_killed(state, hang, killed)
            return [_ended_in(state, hang), *findings]
    return findings


def as_old_as_before(
    state: RunState, findings: list[Finding], incidents: Incidents, now_s: float
) -> list[Finding]:
    """``findings`` with the ages that they had when the hub was away: what was open before and is
    open now did not begin with a hub that learned of it anew."""
    told = []
    for finding in findings:
        began_s = incidents.began_s(finding, state.attempt)
        if began_s is not None and began_s <= state.away_until_s:
            since_s = max(finding.since_s, now_s - began_s)
            finding = msgspec.structs.replace(finding, since_s=since_s)
        told.append(finding)
    return told


def _instead(held: list[Finding], findings: list[Finding]) -> list[Finding]:
    """``findings`` with the hangs that go on, where there are any, in place of their own."""
    return [*held, *(f for f in findings if f.kind not in HANGS)] if held else findings


def _ended_in(state: RunState, hang: Finding) -> Finding:
    """``hang``, saying first that somebody ended the run, and by what: it took nobody with it."""
    ended = np.flatnonzero(state.ranks.over()).tolist()
    names = launchers_end(state) or signals_that_ended(state, ended)
    by = f" by {' and '.join(sorted(names))}" if names else ""
    why = hang.headline.partition(WHILE_IT_HUNG)[2] or hang.headline
    headline = f"ended from outside{by}{WHILE_IT_HUNG}{why}"
    return msgspec.structs.replace(hang, headline=headline)


def _of_all(state: RunState, end: Finding) -> bool:
    """Whether all ranks were ended as one: asked to, or killed when they did not heed that.

    A launcher that was asked to end them may kill one after the other.
    """
    if not end.ranks:
        return True
    killed = bool((state.ranks.signal[end.ranks] == endings.SIGKILL).all())
    if killed and endings.asked_of_run(state) is not None:
        return True
    return killed and not end.victims and len(end.ranks) > 1


def _was_critical(entry: Incident, attempt: int, kinds: frozenset[str]) -> bool:
    finding = entry.finding
    return entry.attempt == attempt and finding.kind in kinds and finding.severity == "critical"


def _still(entry: Incident, now_s: float) -> Finding:
    finding = entry.finding
    if entry.event != "opened":
        return finding
    return msgspec.structs.replace(finding, since_s=max(finding.since_s, now_s - entry.at_s))
