"""``loader-stalled``: a rank waits for its next batch, and others for it; or all of them do."""

import numpy as np

from rankscope.hub.diagnose.hang import words
from rankscope.hub.diagnose.hang.absence import (
    absence,
    awaited,
    in_loader,
    of_ranks,
    severity,
    step_of,
)
from rankscope.hub.diagnose.hang.scene import Scene, warmed_up
from rankscope.hub.diagnose.text import ranks_text
from rankscope.protocol.messages import Phase
from rankscope.protocol.shapes import Finding, Severity


def loader_stalled(scene: Scene) -> list[Finding]:
    """One finding for all ranks whose loader gives nothing."""
    found = absence(scene)
    if found is not None:
        ranks = [rank for rank in found.ranks if in_loader(scene, rank)]
        if not ranks:
            return []
        part = of_ranks(scene, found, ranks)
        grave = severity(scene, part)
        where = awaited(scene, part)
        waiting = words.waiting_line(scene, found.wait.group, found.wait.waiting, found.wait.seq)
        if grave is None:
            return []
        return [_finding(scene, ranks, found.waiting, part.age_s, grave, where, [waiting])]
    return _everybody(scene)


def _everybody(scene: Scene) -> list[Finding]:
    """All ranks wait for data: their storage, perhaps."""
    state = scene.state
    if not warmed_up(state) or scene.waiting or not scene.live.any():
        return []
    ranks = np.flatnonzero(scene.live)
    if (state.ranks.phase[ranks] != Phase.DATA).any():
        return []
    age_s = float(np.min(scene.idle_s[ranks]))
    # Nobody waits for anybody: only the length of the wait tells that it is no ordinary one.
    silent = bool((scene.silent_s[ranks] > 1.0).any())
    expected = any(rank in state.progress.expecting for rank in ranks.tolist())
    if age_s < scene.critical_s or silent or expected:
        return []
    everybody = ranks.tolist()
    return [_finding(scene, everybody, [], age_s, "critical", {}, [])]


def _finding(
    scene: Scene,
    ranks: list[int],
    waiting: list[int],
    age_s: float,
    grave: Severity,
    where: dict[str, str | int],
    more: list[str],
) -> Finding:
    first = ranks[0]
    who = ranks_text(ranks)
    source = words.source_of(scene, first)
    if source:
        where["source"] = source
    where["phase"] = "data"
    verb = "waits" if len(ranks) == 1 else "wait"
    at = f": at {source}" if source else ""
    tail = f"; {words.count_text(waiting)} held up" if waiting else ""
    return Finding(
        kind="loader-stalled",
        severity=grave,
        ranks=ranks,
        victims=[rank for rank in waiting if rank not in ranks],
        step=step_of(scene, ranks),
        since_s=age_s,
        headline=f"{who} {verb} for the next batch{at}{tail}",
        evidence=[*words.places(scene, ranks), *more],
        next="look at the storage the data comes from and at the loader's workers: "
        f"rankscope stacks --rank {first}",
        where=where,
    )
