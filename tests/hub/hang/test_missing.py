"""A rank that never enters a collective: who is to blame, who waits, where it is instead."""

import re

import pytest

from rankscope.protocol import messages as m
from support.collectives import BUCKET, TOKENS, Job
from support.hangs import only, told, training
from support.world import World


def test_a_rank_that_never_enters_is_missing_and_the_place_where_it_is_instead_is_named() -> None:
    """Culprit, victims, the collective they wait in, and the culprit's own line of source."""
    job = training()
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(0.75)
    told(job, 0, 1, 3).stack(2, "model.py:7 in forward").hang(2.0)
    found = only(job)
    assert (found.kind, found.severity) == ("missing-collective", "critical")
    assert (found.ranks, found.victims, found.step) == ([2], [0, 1, 3], 13)
    assert found.where == {
        "collective": "gloo:all_reduce",
        "source": "model.py:7 in forward",
        "phase": "forward",
    }


def test_the_file_that_is_named_can_be_opened() -> None:
    """Its path is in the evidence, once a stack tells it; not where two files of the name are
    meant."""
    job = training()
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(0.75)
    told(job, 0, 1, 3).stack(2, "model.py:7 in forward").hang(2.0)
    assert only(job).evidence[1] == "model.py is /home/ada/model.py"
    twin = m.Frame("/opt/other/model.py", 7, "forward")
    threads = (m.Thread("MainThread", True, (twin,)),)
    job.world.from_rank(
        0, m.Stacks, why="asked", source="model.py:7 in forward", threads=threads, step=12
    )
    assert not any(" is /" in line for line in only(job).evidence)


@pytest.mark.parametrize("phase", [m.Phase.FORWARD, m.Phase.DATA], ids=lambda phase: phase.name)
@pytest.mark.parametrize("ending", ["the link", "the node", "a stop and then the link"])
@pytest.mark.parametrize("last_word_s", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_a_rank_that_fell_silent_is_never_said_to_be_somewhere(
    phase: m.Phase, ending: str, last_word_s: float
) -> None:
    """Its last word is older than the wait, or too young to call it late; nobody knows more."""
    job = Job(World(ranks=4, per_node=3)).steps(12)
    world = job.world
    if ending == "a stop and then the link":
        world.stop(3)
        job.hang(1.0)
        world.cont(3)
    world.phase(3, phase)
    job.enters(TOKENS, ranks=(0, 1, 2))
    world.advance(last_word_s)
    world.ranks[3].mute = True
    if ending == "the node":
        world.silent_hosts.add("node-1")
    world.advance(8.0)
    told = {entry.finding.kind for entry in world.core.know.incidents.shown}
    assert told - {"rank-stopped"} == {"link-lost"}


def test_all_missing_ranks_are_named() -> None:
    """Two ranks in two places are both to blame; their victims are not."""
    job = training(ranks=6)
    job.enters(TOKENS, ranks=(0, 2, 3, 5)).hang(0.75)
    told(job, 0, 2, 3, 5).stack(1, "a.py:1 in f").stack(4, "b.py:2 in g").hang(2.0)
    found = only(job)
    assert (found.ranks, found.victims) == ([1, 4], [0, 2, 3, 5])
    assert any("a.py:1 in f" in line for line in found.evidence)
    assert any("b.py:2 in g" in line for line in found.evidence)


def test_a_majority_that_is_missing_is_to_blame_when_the_one_that_waits_did_as_always() -> None:
    """Three of four that hang in their own code are not excused by their number."""
    job = training()
    job.enters(TOKENS, ranks=(0,)).hang(0.75)
    told(job, 0).hang(2.0)
    assert only(job).ranks == [1, 2, 3]


def test_whoever_waits_for_a_rank_that_waits_elsewhere_is_a_victim() -> None:
    """The chain of waits is followed through the groups to its end."""
    job = training(ranks=4, g1=(0, 1), g2=(1, 2))
    job.enters(BUCKET, ranks=(0,), group="1").enters(BUCKET, ranks=(1,), group="2").hang(0.75)
    told(job, 0, 1).stack(2, "model.py:7 in forward").hang(2.0)
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("missing-collective", [2], [0, 1])


def test_a_recorder_that_is_off_costs_the_name_of_the_collective_and_no_more() -> None:
    """Without operations the counts alone tell who is missing."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).hang(3.0)
    found = only(job)
    assert (found.kind, found.ranks) == ("missing-collective", [1])
    assert "collective" not in found.where


@pytest.mark.parametrize(("seconds", "severity"), [(0.5, "info"), (2.0, "critical")])
@pytest.mark.parametrize(
    ("ranks", "absent", "who", "others"),
    [
        (2, (1,), "rank 1", "rank 0 waits"),
        (4, (2,), "rank 2", "3 ranks wait"),
        (4, (2, 3), "ranks 2 and 3", "2 ranks wait"),
    ],
)
def test_the_line_that_is_named_stands_behind_the_rank_that_is_there(
    ranks: int, absent: tuple[int, ...], who: str, others: str, seconds: float, severity: str
) -> None:
    """Nobody reads it as the place where the others wait."""
    job = training(ranks=ranks)
    waiting = [rank for rank in range(ranks) if rank not in absent]
    job.enters(TOKENS, ranks=waiting).hang(0.75)
    told(job, *waiting)
    for rank in absent:
        job.stack(rank, "model.py:7 in forward")
    job.hang(seconds)
    found = only(job)
    entered = {
        "info": f"{'is' if len(absent) == 1 else 'are'} late for",
        "critical": "never entered",
    }[severity]
    assert found.severity == severity
    assert re.fullmatch(
        rf"{who} {entered} all_reduce #\d+: at model.py:7 in forward; {others}", found.headline
    )
