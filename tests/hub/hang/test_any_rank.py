"""Each kind of hang on the first, a middle and the last rank, of two and of more of them."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rankscope.protocol import messages as m
from support.collectives import BUCKET, TOKENS, Job
from support.world import World

LINE = "bad.py:7 in forward"


@dataclass
class Scene:
    """A job, the rank that goes wrong and the others, who are in the next step's first collective
    unless they are said to be elsewhere."""

    job: Job
    culprit: int
    others: tuple[int, ...]

    def wait(self, what: str = TOKENS, group: str = "0") -> None:
        self.job.enters(what, ranks=self.others, group=group)

    def tell(self, hang_s: float = 3.0, *, culprit: bool = True) -> None:
        """Time goes by, and all tell what they did and where they are."""
        self.job.hang(0.75)
        for rank in self.others:
            self.job.operations(rank).stack(rank)
        if culprit:
            self.job.operations(self.culprit).stack(self.culprit, LINE)
        self.job.hang(hang_s)


def lock(scene: Scene) -> None:
    scene.job.world.phase(scene.culprit, m.Phase.FORWARD)
    scene.wait()
    scene.tell()


def loader(scene: Scene) -> None:
    scene.job.world.phase(scene.culprit, m.Phase.DATA)
    scene.wait()
    scene.tell()


def skipped(scene: Scene) -> None:
    scene.wait()
    scene.job.enters(BUCKET, ranks=(scene.culprit,), source=LINE)
    scene.tell()


def extra(scene: Scene) -> None:
    everyone = (scene.culprit, *scene.others)
    scene.job.does(TOKENS, ranks=everyone)
    scene.wait(BUCKET)
    scene.job.enters(TOKENS, ranks=(scene.culprit,), source=LINE)
    scene.tell()


def wrong_operation(scene: Scene) -> None:
    scene.wait()
    scene.job.enters("broadcast [1] int64", ranks=(scene.culprit,), source=LINE)
    scene.tell()


def out_of_data(scene: Scene) -> None:
    world = scene.job.world
    world.from_rank(scene.culprit, m.Goodbye, reason="finished", step=12, data_over=True)
    world.ranks[scene.culprit].over = True
    scene.wait()
    scene.job.hang(0.75)
    for rank in scene.others:
        scene.job.operations(rank).stack(rank)
    scene.job.stack(scene.culprit, LINE, outside=True).hang(3.0)


def opposite_groups(scene: Scene) -> None:
    scene.wait(BUCKET, "1")
    scene.job.enters(BUCKET, ranks=(scene.culprit,), group="2", source=LINE)
    scene.tell()


def stopped(scene: Scene) -> None:
    scene.job.world.stop(scene.culprit)
    scene.wait()
    scene.tell(culprit=False)


def killed(scene: Scene) -> None:
    scene.wait()
    scene.job.world.kill(scene.culprit)
    for rank in scene.others:
        scene.job.world.raises(
            rank, "RuntimeError", from_peer=True, message="gloo: Connection reset by peer"
        )


def aborts(scene: Scene) -> None:
    scene.wait()
    scene.job.world.kill(scene.culprit, signal=6)
    for rank in scene.others:
        scene.job.world.raises(
            rank, "RuntimeError", from_peer=True, message="gloo: Connection reset by peer"
        )
        scene.job.operations(rank, "raised")
    scene.job.world.now_s += 1.0


def raises(scene: Scene) -> None:
    scene.job.world.raises(scene.culprit)
    scene.wait()
    scene.tell(culprit=False)


KINDS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "lock": (lock, "missing-collective"),
    "loader": (loader, "loader-stalled"),
    "skipped": (skipped, "collective-mismatch"),
    "extra": (extra, "collective-mismatch"),
    "wrong operation": (wrong_operation, "collective-mismatch"),
    "out of data": (out_of_data, "uneven-data"),
    "opposite groups": (opposite_groups, "group-deadlock"),
    "stopped": (stopped, "rank-stopped"),
    "killed": (killed, "rank-dead"),
    "aborts": (aborts, "rank-dead"),
    "raises": (raises, "exception"),
}


@pytest.mark.parametrize("size", [2, 4, 7])
@pytest.mark.parametrize("fault", KINDS)
def test_the_rank_that_went_wrong_is_named_wherever_it_is(fault: str, size: int) -> None:
    """One critical finding, with all others as its victims."""
    happens, kind = KINDS[fault]
    for culprit in sorted({0, size // 2, size - 1}):
        everyone = tuple(range(size))
        job = Job(World(ranks=size), {"1": everyone, "2": everyone}).steps(12)
        others = tuple(rank for rank in everyone if rank != culprit)
        happens(Scene(job, culprit, others))
        found = [f for f in job.world.findings() if f.severity == "critical"]
        if (fault, size) == ("opposite groups", 2):  # neither is the odd one: that is said
            assert [(f.kind, len(f.ranks)) for f in found] == [(kind, 1)]
            assert any("cannot be known from 2 ranks" in line for line in found[0].evidence)
            continue
        assert [(f.kind, f.ranks) for f in found] == [(kind, [culprit])], culprit
        assert set(found[0].victims) == set(others), culprit
