"""``missing-collective``: a rank never entered a collective that others wait in."""

from rankscope.hub.diagnose.hang import words
from rankscope.hub.diagnose.hang.absence import (
    Absence,
    absence,
    awaited,
    in_loader,
    of_ranks,
    ran_out,
    severity,
    step_of,
)
from rankscope.hub.diagnose.hang.scene import Scene
from rankscope.hub.diagnose.text import phase_of, ranks_text
from rankscope.protocol.shapes import Finding, Severity


def missing_collective(scene: Scene) -> list[Finding]:
    """One finding for all that are missing; where the first of them is instead."""
    found = absence(scene)
    if found is None:
        return []
    ranks = [
        rank
        for rank in found.ranks
        if not in_loader(scene, rank) and not ran_out(scene, rank, found.waiting)
    ]
    if not ranks:
        return []
    found = of_ranks(scene, found, ranks)
    grave = severity(scene, found)
    if grave is None:
        return []
    first = ranks[0]
    where = awaited(scene, found)
    source = words.source_of(scene, first)
    if source:
        where["source"] = source
    where["phase"] = phase_of(scene.state, first)
    return [
        Finding(
            kind="missing-collective",
            severity=grave,
            ranks=ranks,
            victims=[rank for rank in found.waiting if rank not in ranks],
            step=step_of(scene, ranks),
            since_s=found.age_s,
            headline=_headline(scene, found, grave, source),
            evidence=[
                *words.places(scene, ranks),
                words.waiting_line(scene, found.wait.group, found.wait.waiting, found.wait.seq),
            ],
            next=f"see where it is: rankscope stacks --rank {first}"
            if len(ranks) == 1
            else "see where they are: rankscope stacks",
            where=where,
        )
    ]


def _headline(scene: Scene, found: Absence, grave: Severity, source: str) -> str:
    who = ranks_text(found.ranks)
    wait = found.wait
    operation = words.operation_at(scene.state, wait.group, wait.waiting, wait.seq)
    what = f"{operation.partition(' ')[0] or 'collective'} #{wait.seq}"
    at = f": at {source}" if source else ""
    expected = sorted({scene.state.progress.expecting.get(rank, "") for rank in found.ranks} - {""})
    if expected:
        verb = "is" if len(found.ranks) == 1 else "are"
        return f"{who} {verb} in {expected[0]}; {words.count_text(found.waiting)} waiting in {what}"
    waits = "waits" if len(found.waiting) == 1 else "wait"
    # The line is the absent rank's, so it stands behind what is said of that one.
    tail = f"{what}{at}; {words.count_text(found.waiting)} {waits}"
    if grave == "info":
        return f"{who} {'is' if len(found.ranks) == 1 else 'are'} late for {tail}"
    if all(words.has_left(scene.state, rank) for rank in found.ranks):
        return f"{who} left the training loop and never entered {tail}"
    return f"{who} never entered {tail}"
