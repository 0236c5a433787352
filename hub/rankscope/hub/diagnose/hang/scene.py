"""Who waits in which collective, and for whom: what all verdicts about hangs start from. Pure.

A rank *waits* when it has entered a collective that is not complete, and nothing on it has moved
for a while. It waits for the members that have not entered that collective. Following this leads
to ranks that are somewhere else (they hold up the others), to a collective that all have entered
(it is a different one on some of them, or the fabric is stuck), or round in a circle.
"""

from dataclasses import dataclass, field

import numpy as np

from rankscope.hub.diagnose.endings import CLOCK_FUZZ_S
from rankscope.hub.diagnose.hang.broken import broke_s, failed_ranks
from rankscope.hub.diagnose.hang.table import GroupRows, Table, table
from rankscope.hub.liveness import live
from rankscope.hub.stall import has_stepped
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags, Floats, Integers
from rankscope.hub.state.moved import moved_s
from rankscope.hub.state.ranks import FINISHED, RECENT_STEPS, STOPPED

TROUBLE_S = 0.4
"""What moved within this time is not looked at, …"""

UNSAID_S, SAID_S = 0.55, 0.1
"""… nor what moved within the first of these and has not spoken since, the second after it moved: a
rank that goes on moves with every word, and speaks every 0.45 s."""

LATE_S = 0.6
LATE_STEPS = 3.0
LATE_LONG_STEPS = 2.0
"""A rank is late after this long, so many of its steps, or so many of its long ones."""

SAMPLED_RANKS = 64
"""Synchronous training makes the steps of all ranks equally long."""

CRITICAL_S = 2.0
CRITICAL_STEPS = 5.0
"""It is a hang after this long, or so many times the longest step since warm-up."""

FRESH_S = 1.0
"""An agent speaks twice a second: of one that was heard within this time it is known where it
is."""

MAX_GROUPS = 64
"""Groups with most ranks that wait, of which is told."""

MAX_NEEDS = 8
"""Different collectives of one group that ranks wait in at once, of which is told."""


@dataclass(frozen=True)
class Wait:
    """Ranks that wait in collective ``seq`` of ``group``, and members that have not entered it."""

    group: GroupRows
    seq: int
    waiting: list[int]
    missing: list[int]


@dataclass
class Scene:
    """One moment of a run in which something does not move."""

    state: RunState
    now_s: float
    live: Flags
    idle_s: Floats
    """How long nothing on the rank has moved, shape (size,)."""
    silent_s: Floats
    """Since when nothing was heard of the rank, whatever excuses it, shape (size,)."""
    late_s: float
    critical_s: float
    groups: Table
    waits: list[Wait]
    waiting: set[int]
    """Ranks in any of ``waits``."""
    failed: set[int]
    """Of these, ranks that have ended because of whom they waited for, as it seems."""
    behind: set[int]
    """For whom those waited."""
    explained: set[int] = field(default_factory=set)
    """Ranks of which an earlier verdict tells."""

    def held_up(self) -> list[tuple[Wait, list[int]]]:
        """The waits that end at ranks which are somewhere else, and those ranks."""
        found = []
        for wait in self.waits:
            elsewhere = [rank for rank in wait.missing if rank not in self.waiting]
            if elsewhere:
                found.append((wait, elsewhere))
        return found

    def leading_to(self, culprits: set[int]) -> set[int]:
        """The ranks that wait for ``culprits``, also those that do by way of others."""
        reached = set(culprits)
        waits = [wait for wait in self.waits if wait.missing]
        grown = True
        while grown:
            grown = False
            for wait in waits:
                if reached.intersection(wait.missing) and not reached.issuperset(wait.waiting):
                    reached.update(wait.waiting)
                    grown = True
        return reached - culprits

    def all_entered(self) -> list[Wait]:
        """The waits in collectives that nobody is missing from."""
        return [wait for wait in self.waits if not wait.missing]

    def circular(self) -> list[Wait]:
        """The waits from which every way leads round in a circle."""
        open_ = {id(wait): wait for wait in self.waits}
        # Whatever leads to a rank that is elsewhere, or to a collective all have entered, goes.
        ending = [
            wait
            for wait in self.waits
            if not wait.missing or any(rank not in self.waiting for rank in wait.missing)
        ]
        while ending:
            for wait in ending:
                open_.pop(id(wait), None)
            stuck = {rank for wait in open_.values() for rank in wait.waiting}
            ending = [
                wait for wait in open_.values() if any(rank not in stuck for rank in wait.missing)
            ]
        return list(open_.values())

    def age_s(self, culprits: list[int], waiting: list[int]) -> float:
        """How long the first of ``waiting`` has waited for ``culprits``, none of which moved."""
        ages = [self.still_s(rank) for rank in culprits]
        if waiting:
            ages.append(float(np.max(self.idle_s[waiting])))
        return max(0.0, min(ages)) if ages else 0.0

    def still_s(self, rank: int) -> float:
        """How long the rank has not moved, or has been gone."""
        gone_s = self.state.ranks.goodbye_s.item(rank)
        left = not self.live[rank] and gone_s == gone_s
        return self.now_s - gone_s if left else float(self.idle_s[rank])

    def seen_still_s(self, rank: int) -> float:
        """How long the rank had not moved when it last spoke: what came then nobody knows."""
        silent_s = float(self.silent_s[rank]) if self.live[rank] else 0.0
        return self.still_s(rank) - silent_s

    def heard_lately(self, rank: int) -> bool:
        return bool(self.silent_s[rank] <= FRESH_S)


def look(state: RunState, now_s: float) -> Scene | None:
    """What does not move; None while everything does."""
    alive = live(state)
    size = len(alive)
    failed = [rank for rank in failed_ranks(state) if state.ranks.goodbye[rank] != FINISHED]
    if not alive.any() and not failed:
        return None
    ranks = state.ranks
    since_s = np.fmax(moved_s(state), ranks.excused_s)[:size]
    # What moved while the hub was away is not known yet.
    idle_s: Floats = np.minimum(now_s - since_s, now_s - state.away_until_s)
    still = alive & stands(idle_s, now_s - ranks.heard_s[:size])
    if not still.any() and not failed:
        return None
    groups = table(state)
    patience_s = critical_s(state)
    failures = _failures(state, groups, failed, patience_s)
    waits = _waits(groups, still) + failures
    return Scene(
        state=state,
        now_s=now_s,
        live=alive,
        idle_s=idle_s,
        silent_s=now_s - ranks.heard_s[:size],
        late_s=late_s(state),
        critical_s=patience_s,
        groups=groups,
        waits=waits,
        waiting={rank for wait in waits for rank in wait.waiting},
        failed=set(failed),
        behind={rank for wait in failures for rank in wait.missing},
    )


def stands(idle_s: Floats, silent_s: Floats) -> Flags:
    """Which ranks are looked at, that have not moved for ``idle_s`` nor spoken for ``silent_s``."""
    found: Flags = (idle_s >= TROUBLE_S) & ((idle_s >= UNSAID_S) | (idle_s - silent_s >= SAID_S))
    return found


def late_s(state: RunState) -> float:
    """After how long a rank is late: seconds, by the pace of the run and how even it is.

    The first step is warm-up; it counts only while it is the only one there was.
    """
    sample = slice(min(state.size(), SAMPLED_RANKS))
    seen = state.ranks.steps_seen[sample]
    counts = ~np.isnan(state.ranks.recent_step_s[sample])
    counts[(seen > 1) & (seen <= RECENT_STEPS), 0] = False
    recent_s = state.ranks.recent_step_s[sample][counts]
    if not recent_s.size:
        return LATE_S
    usual_s, long_s = np.percentile(recent_s, (50, 95))
    return max(LATE_S, LATE_STEPS * float(usual_s), LATE_LONG_STEPS * float(long_s))


def critical_s(state: RunState) -> float:
    """After how long it is a hang: seconds, by the longest step since warm-up."""
    longest_s = state.ranks.longest_step_s
    if not (longest_s > 0).any():
        longest_s = state.ranks.first_step_s
    return max(CRITICAL_S, CRITICAL_STEPS * float(np.fmax.reduce(longest_s, initial=0.0)))


def warmed_up(state: RunState) -> bool:
    """Before the first step is complete, long is normal (compilation, imports, cold caches)."""
    return has_stepped(state)


def _waits(groups: Table, still: Flags) -> list[Wait]:
    waiting: Flags = (groups.entered > groups.completed) & still[groups.shape.ranks]
    waits = []
    for group in groups.with_any(waiting)[:MAX_GROUPS]:
        pending: Flags = (group.entered > group.completed) & still[group.ranks]
        needs: Integers = np.unique(group.completed[pending]) + 1
        for seq in needs[:MAX_NEEDS].tolist():
            here = pending & (group.completed == seq - 1)
            missing = group.ranks[group.entered < seq]
            waits.append(Wait(group, seq, group.ranks[here].tolist(), missing.tolist()))
    return waits


def _failures(state: RunState, groups: Table, failed: list[int], critical_s: float) -> list[Wait]:
    """The collectives in which ranks failed, and the members that kept them from ending: those
    that had left before, and those that had stood still for long when the others gave up."""
    if not failed:
        return []
    broken_s = broke_s(state, failed)
    ranks = state.ranks
    left = (ranks.goodbye == FINISHED) & (ranks.goodbye_s <= broken_s + CLOCK_FUZZ_S)
    stood = broken_s - moved_s(state) >= critical_s
    stood &= ~(ranks.ended_s <= broken_s + CLOCK_FUZZ_S)  # whoever died before is a cause itself
    stood[[*failed, *(rank for rank in state.words.exceptions if rank < len(stood))]] = False
    stood[ranks.process == STOPPED] = False
    if not (left | stood).any():
        return []
    waits = []
    for group in groups.of_ranks(failed)[:MAX_GROUPS]:
        here = [rank for rank in failed if rank in group]
        entered = max(place.entered for rank in here if (place := group.member(rank)))
        gone = (left | stood)[group.ranks] & (group.entered < entered)
        if gone.any():
            seq = int(group.entered[gone].min()) + 1
            waits.append(Wait(group, seq, here, group.ranks[gone].tolist()))
    return waits
