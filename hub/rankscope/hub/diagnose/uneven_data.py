"""``uneven-data``: a rank had no more data and left the loop; the others have and wait for it."""

from rankscope.hub.diagnose.hang import words
from rankscope.hub.diagnose.hang.absence import absence, awaited, of_ranks, ran_out, step_of
from rankscope.hub.diagnose.hang.difference import Difference
from rankscope.hub.diagnose.hang.scene import Scene
from rankscope.hub.diagnose.text import phase_of, ranks_text
from rankscope.protocol.shapes import Finding


def uneven_data(scene: Scene, differs: Difference | None) -> list[Finding]:
    """Ranks that others wait for, and ranks in another collective, whose loaders have ended.

    It is known at once: that the data is over is no matter of patience.
    """
    evidence: list[str] = []
    where: dict[str, str | int] = {}
    if differs is not None and all(ran_out(scene, rank, differs.others) for rank in differs.ranks):
        ranks, waiting = differs.ranks, differs.others
        where = {"collective": differs.usual.name} if differs.usual else {}
        age_s = max(0.0, scene.now_s - differs.at_s)
        evidence = differs.lines(scene.state)
    else:
        found = absence(scene)
        if found is None:
            return []
        ranks = [rank for rank in found.ranks if ran_out(scene, rank, found.waiting)]
        if not ranks:
            return []
        found = of_ranks(scene, found, ranks)
        if found.age_s < scene.late_s and not scene.failed.intersection(found.waiting):
            return []
        waiting, age_s = found.waiting, found.age_s
        where = awaited(scene, found)
        evidence = [words.waiting_line(scene, found.wait.group, found.wait.waiting, found.wait.seq)]
    first = ranks[0]
    source = words.source_of(scene, first) or (
        differs.source(scene.state, first) if differs is not None else ""
    )
    if source:
        where["source"] = source
    where["phase"] = phase_of(scene.state, first)
    has = "has" if len(ranks) == 1 else "have"
    at = f": now at {source}" if source else ""
    return [
        Finding(
            kind="uneven-data",
            severity="critical",
            ranks=ranks,
            victims=[rank for rank in waiting if rank not in ranks],
            step=step_of(scene, ranks),
            since_s=age_s,
            headline=f"{ranks_text(ranks)} {has} no more data and left the loop{at}; "
            f"{words.count_text(waiting)} still training",
            evidence=[*words.places(scene, ranks), *evidence],
            next="compare the number of batches on each rank; DistributedSampler or join() "
            "keep them even",
            where=where,
        )
    ]
