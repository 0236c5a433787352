"""``collective-stuck``: all members are in the same collective and none leaves: the fabric."""

from rankscope.hub.diagnose.hang import words
from rankscope.hub.diagnose.hang.scene import Scene, warmed_up
from rankscope.hub.diagnose.hang.table import label
from rankscope.hub.diagnose.text import ranks_text
from rankscope.protocol.shapes import Finding


def collective_stuck(scene: Scene) -> list[Finding]:
    """The widest such collective; only where nothing else is wrong."""
    if not warmed_up(scene.state):
        return []
    entered = [
        wait
        for wait in scene.all_entered()
        if len(wait.waiting) == len(wait.group.ranks)
        and not scene.explained.intersection(wait.waiting)
        and all(scene.heard_lately(rank) for rank in wait.waiting)
    ]
    if not entered:
        return []
    wait = max(entered, key=lambda wait: len(wait.waiting))
    age_s = min(float(scene.idle_s[rank]) for rank in wait.waiting)
    if age_s < scene.late_s:
        return []
    state = scene.state
    name = words.name_at(state, wait.group, wait.waiting, wait.seq)
    operation = words.operation_at(state, wait.group, wait.waiting, wait.seq)
    what = operation.partition(" ")[0] or "collective"
    where: dict[str, str | int] = {"collective": name} if name else {}
    return [
        Finding(
            kind="collective-stuck",
            severity="critical" if age_s >= scene.critical_s else "info",
            ranks=[],
            victims=wait.waiting,
            step=min(state.ranks.step[wait.waiting].tolist()) + 1,
            since_s=age_s,
            headline=f"{what} #{wait.seq} of {label(wait.group.name, wait.group.description)} does "
            f"not end: {ranks_text(wait.waiting)} are all in it",
            evidence=[
                words.waiting_line(scene, wait.group, wait.waiting, wait.seq),
                "all members have entered it, and as far as is known with the same operation",
            ],
            next="look at the network between the nodes, and at dmesg for link errors",
            where=where,
        )
    ]
