"""Why a run does not move: the kinds of finding that rest on progress, in order. Pure.

What ranks say of themselves and what their sentinels see comes first (``known``): a hang that it
explains is no finding of its own. Then who held its interpreter, who did something else, whose data
was over, who is somewhere else, who waits in a circle, and only then the fabric.
"""

import math

import numpy as np

from rankscope.hub.diagnose.collective_mismatch import (
    collective_mismatch,
    difference,
    want_evidence,
)
from rankscope.hub.diagnose.collective_stuck import collective_stuck
from rankscope.hub.diagnose.gil_held import gil_held
from rankscope.hub.diagnose.group_deadlock import group_deadlock
from rankscope.hub.diagnose.hang.broken import broke_s, failed_ranks
from rankscope.hub.diagnose.hang.scene import Scene, look
from rankscope.hub.diagnose.hang.table import GroupRows, table
from rankscope.hub.diagnose.loader_stalled import loader_stalled
from rankscope.hub.diagnose.missing_collective import missing_collective
from rankscope.hub.diagnose.rank_dead import INTERRUPTED
from rankscope.hub.diagnose.uneven_data import uneven_data
from rankscope.hub.inquiries import FOREIGN_STACKS, OPERATIONS, STACKS
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ALIVE, FINISHED
from rankscope.protocol.shapes import Finding

LEARN_AFTER_STEPS = 5
"""Enough of them to see what comes after what."""

MAX_SUSPECTS = 16
MAX_SAMPLE = 8
"""Ranks that wait are alike: a few of them are asked."""

HELD_BACK_S = 0.8
"""How long an end that a collective may have brought about is kept back, unless all ranks have told
before what they did."""


def hangs(state: RunState, known: list[Finding], now_s: float) -> list[Finding]:
    """``known`` without what is a consequence, and the verdicts about what does not move."""
    if state.controls.held:
        return known  # ranks stand at a boundary because an operator wants it: no other is late
    scene = look(state, now_s)
    differs = difference(state, scene)
    blamed = set() if scene is None else _left_before(scene)
    if differs is not None or blamed:
        known = [finding for finding in known if not _consequence(state, finding, blamed)]
    else:
        known = [finding for finding in known if not _too_early(state, finding)]
    _learn(state)
    _ask_those_who_left(state)
    _ask_those_who_survive(state)
    if scene is not None:
        _ask(scene)
    gil = gil_held(state, now_s)
    if gil:
        mute = {rank for finding in gil for rank in finding.ranks}
        known = [f for f in known if f.kind != "link-lost" or not mute.issuperset(f.ranks)]
    if gil or any(f.severity == "critical" and f.kind in EXPLAIN for f in known):
        return [*known, *gil]
    if scene is not None:
        data = uneven_data(scene, differs)
        if data:
            return [*known, *data]
    mismatch = collective_mismatch(state, scene, differs, now_s)
    if mismatch or scene is None:
        return [*known, *mismatch]
    for kinds in ((group_deadlock,), (loader_stalled, missing_collective), (collective_stuck,)):
        found = [finding for kind in kinds for finding in kind(scene)]
        if found:
            return [*known, *found]
    return known


EXPLAIN = ("rank-dead", INTERRUPTED, "rank-stopped", "link-lost", "exception")
"""Kinds that explain why the others wait."""


def _left_before(scene: Scene) -> set[int]:
    """Ranks that had left the loop, or stood still, when others failed for want of them."""
    return scene.behind


def _consequence(state: RunState, finding: Finding, left: set[int]) -> bool:
    """Whether collectives that did not match, or ranks that left, may have brought this about."""
    if finding.kind not in ("exception", "rank-dead", INTERRUPTED):
        return False
    failed = failed_ranks(state)
    named = finding.ranks or finding.victims
    if not named:
        return bool(failed)  # the launcher ended the others, having seen that
    return left.union(failed).issuperset(named)


def _too_early(state: RunState, finding: Finding) -> bool:
    """Whether the ranks may still tell that it is a consequence."""
    if finding.since_s >= HELD_BACK_S or not _consequence(state, finding, set()):
        return False
    named = finding.ranks or finding.victims
    groups = table(state).of_ranks(named)
    return bool(groups) and not _all_told(state, groups, broke_s(state, failed_ranks(state)))


def _all_told(state: RunState, groups: list[GroupRows], since_s: float) -> bool:
    """Whether nothing more is to be learned of what any member did until ``since_s``."""
    told_s = state.operations.told_s
    if len(told_s) < max(len(group.ranks) for group in groups):
        return False
    return all(told_s.get(rank, -math.inf) >= since_s for g in groups for rank in g.ranks.tolist())


def _learn(state: RunState) -> None:
    """Know the ordinary course of collectives, should a rank end before it can tell its last."""
    ranks = state.ranks
    alive = np.flatnonzero(live(state))
    if alive.size < 2:
        return
    for rank in {int(alive[0]), int(alive[-1])}:
        steps = ranks.step.item(rank) - ranks.start_step.item(rank)
        if steps < LEARN_AFTER_STEPS or rank not in state.words.collectives:
            continue
        if rank not in state.operations.windows:
            state.inquiries.want(rank, OPERATIONS)
        if not state.stacks.backward_source:
            state.inquiries.want(rank, STACKS)


def _ask_those_who_left(state: RunState) -> None:
    """Where a rank is that has left its loop while others train, before it may be too late."""
    ranks = state.ranks
    size = state.size()
    left = (ranks.goodbye[:size] == FINISHED) & (ranks.process[:size] == ALIVE)
    if not left.any() or not (live(state) & (ranks.process[:size] == ALIVE)).any():
        return
    for rank in np.flatnonzero(left)[:MAX_SUSPECTS].tolist():
        note = state.stacks.outside.get(rank)
        if note is None or note.at_s < ranks.goodbye_s.item(rank) or not note.source:
            state.inquiries.want(rank, FOREIGN_STACKS)


def _ask_those_who_survive(state: RunState) -> None:
    """What the others did when a collective failed, before their launcher ends them."""
    failed = failed_ranks(state)
    alive = live(state)
    if not failed or not alive.any():
        return
    for group in table(state).of_ranks(failed)[:MAX_SAMPLE]:
        here = group.ranks[alive[group.ranks]]
        for rank in here[:MAX_SUSPECTS].tolist():
            state.inquiries.want(rank, STACKS, OPERATIONS, now=True)


def _ask(scene: Scene) -> None:
    """What would help: the stacks of those who are elsewhere, the collectives of those who wait."""
    inquiries = scene.state.inquiries
    suspects = sorted({rank for _, elsewhere in scene.held_up() for rank in elsewhere})
    for rank in suspects[:MAX_SUSPECTS]:
        if scene.live[rank] and scene.heard_lately(rank):
            inquiries.want(rank, STACKS, OPERATIONS)
        else:
            inquiries.want(rank, FOREIGN_STACKS)
    for wait in scene.waits[:MAX_SAMPLE]:
        inquiries.want_all(wait.waiting[:MAX_SAMPLE], STACKS)
    want_evidence(scene.state, scene)
