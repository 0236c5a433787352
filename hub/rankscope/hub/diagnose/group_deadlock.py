"""``group-deadlock``: ranks wait for each other in different process groups, round in a circle."""

from rankscope.hub.diagnose.hang import words
from rankscope.hub.diagnose.hang.scene import Scene, Wait
from rankscope.hub.diagnose.hang.table import label
from rankscope.hub.diagnose.text import ranks_text, step_in_work
from rankscope.protocol.shapes import Finding

SETTLED_S = 0.15
"""Each rank of the circle must have spoken again after the last of them moved: what was told at
different moments may not be put together."""


def group_deadlock(scene: Scene) -> list[Finding]:
    """One circle; to blame are those who wait in the group that fewer of them wait in."""
    circle = scene.circular()
    ranks = sorted({rank for wait in circle for rank in wait.waiting})
    if not ranks or not _settled(scene, ranks):
        return []
    normal, odd, known = _sides(circle)
    state = scene.state
    culprits = sorted({rank for wait in odd for rank in wait.waiting})
    name = words.name_at(state, normal.group, normal.waiting, normal.seq)
    where: dict[str, str | int] = {"collective": name} if name else {}
    source = words.source_of(scene, culprits[0])
    if source:
        where["source"] = source
    evidence = [
        f"{words.waiting_line(scene, wait.group, wait.waiting, wait.seq)}; "
        f"{ranks_text(wait.missing)} not in it"
        for wait in circle[:6]
    ]
    if not known:
        evidence.append(
            f"which order is the wrong one cannot be known from {len(ranks)} ranks: "
            f"{ranks_text(culprits)} differ{'s' if len(culprits) == 1 else ''} from rank {ranks[0]}"
        )
    there = label(odd[0].group.name, odd[0].group.description)
    here = label(normal.group.name, normal.group.description)
    return [
        Finding(
            kind="group-deadlock",
            severity="critical",
            ranks=culprits,
            victims=[rank for rank in ranks if rank not in culprits],
            step=min(step_in_work(state, rank) for rank in culprits),
            since_s=min(float(scene.idle_s[rank]) for rank in ranks),
            headline=f"{ranks_text(culprits)} in {there} and {ranks_text(normal.waiting)} in "
            f"{here} wait for each other: two groups in opposite order",
            evidence=evidence,
            next="compare the order in which the ranks use the two groups: rankscope stacks",
            where=where,
        )
    ]


def _settled(scene: Scene, ranks: list[int]) -> bool:
    """Whether all of them said the same again after the last of them had moved."""
    idle_s = min(float(scene.idle_s[rank]) for rank in ranks)
    return all(float(scene.silent_s[rank]) < idle_s - SETTLED_S for rank in ranks)


def _sides(circle: list[Wait]) -> tuple[Wait, list[Wait], bool]:
    """The wait that most ranks are in, the others, and whether most of them are in it."""
    first = min(rank for wait in circle for rank in wait.waiting)
    normal = max(circle, key=lambda wait: (len(wait.waiting), first in wait.waiting))
    odd = [wait for wait in circle if wait is not normal]
    known = all(len(wait.waiting) < len(normal.waiting) for wait in odd)
    return normal, odd, known
