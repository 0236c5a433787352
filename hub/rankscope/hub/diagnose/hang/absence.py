"""Ranks that others wait for and that are not in a collective themselves. Pure."""

from dataclasses import dataclass

from rankscope.hub.diagnose.hang.scene import (
    CRITICAL_S,
    LATE_S,
    Scene,
    Wait,
    warmed_up,
)
from rankscope.hub.diagnose.hang.words import has_left, name_at
from rankscope.hub.diagnose.text import step_in_work
from rankscope.hub.state.ranks import STOPPED
from rankscope.protocol.messages import Phase
from rankscope.protocol.shapes import Severity

EXPECTED_LATE_S = 30.0
"""A rank that is in something which may take long is not spoken of before."""

ON_THE_WAY_S = 0.05
"""A rank says that it is late when it is by its own clock: its words may take so much longer."""


@dataclass(frozen=True)
class Absence:
    """Who holds up whom, and since when."""

    ranks: list[int]
    waiting: list[int]
    wait: Wait
    """The collective in which most of them wait."""
    age_s: float


def absence(scene: Scene) -> Absence | None:
    """All ranks that hold up others from elsewhere; None when there are none, or not for long."""
    if not warmed_up(scene.state):
        return None
    held = scene.held_up()
    absent = {rank for _, elsewhere in held for rank in elsewhere if may_be_blamed(scene, rank)}
    held = [(wait, elsewhere) for wait, elsewhere in held if absent.intersection(elsewhere)]
    if not held:
        return None
    main = max((wait for wait, _ in held), key=lambda wait: len(wait.waiting))
    ranks = sorted(absent)
    waiting = sorted(scene.leading_to(absent))
    return Absence(ranks, waiting, main, scene.age_s(ranks, main.waiting))


def may_be_blamed(scene: Scene, rank: int) -> bool:
    """Whether it is known where the rank is, and that no other verdict tells of it."""
    ranks = scene.state.ranks
    if rank in scene.explained or ranks.process[rank] == STOPPED:
        return False
    if rank in scene.behind:
        return True
    if not scene.live[rank]:
        return has_left(scene.state, rank)
    return scene.heard_lately(rank) and ranks.step.item(rank) > ranks.start_step.item(rank)


def of_ranks(scene: Scene, found: Absence, ranks: list[int]) -> Absence:
    """The part of an absence that these ranks are to blame for."""
    return Absence(ranks, found.waiting, found.wait, scene.age_s(ranks, found.wait.waiting))


def severity(scene: Scene, found: Absence) -> Severity | None:
    """``critical`` once it is a hang, ``info`` while it is late, None before."""
    if scene.behind.intersection(found.ranks) and scene.failed.intersection(found.waiting):
        return "critical"  # it is no matter of patience any more
    if any(rank in scene.state.progress.expecting for rank in found.ranks):
        return "info" if found.age_s >= EXPECTED_LATE_S else None
    late_s, critical_s = scene.late_s, scene.critical_s
    if not scene.live[found.ranks].any():
        late_s, critical_s = LATE_S, CRITICAL_S  # they have left: no step of theirs will end
    if min(scene.seen_still_s(rank) for rank in found.ranks) < late_s - ON_THE_WAY_S:
        return None  # whoever fell silent before that may have come since
    if found.age_s >= critical_s:
        return "critical"
    return "info" if found.age_s >= late_s else None


def in_loader(scene: Scene, rank: int) -> bool:
    """Whether the rank waits for its next batch."""
    return bool(scene.live[rank] and scene.state.ranks.phase[rank] == Phase.DATA)


def ran_out(scene: Scene, rank: int, others: list[int]) -> bool:
    """Whether the rank's data has ended and that of ``others`` has not."""
    over = scene.state.progress.data_over
    return rank in over and not over.issuperset(others)


def awaited(scene: Scene, found: Absence) -> dict[str, str | int]:
    """``where`` with the collective that the others wait in, where that is known."""
    name = name_at(scene.state, found.wait.group, found.wait.waiting, found.wait.seq)
    return {"collective": name} if name else {}


def step_of(scene: Scene, ranks: list[int]) -> int:
    """The step in work of the rank that is furthest behind."""
    return min(step_in_work(scene.state, rank) for rank in ranks)
