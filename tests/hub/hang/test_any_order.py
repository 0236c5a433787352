"""What is told of a run that broke down comes from several senders in any order: one verdict."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.shapes import Finding
from support.collectives import TOKENS, Call, Job
from support.world import World

LINE = "train.py:20 in train"
WENT_ON: Call = ("", 0, "went_on", "")
RESET = "gloo: Connection reset by peer"
Event = tuple[str, Callable[[], object]]


def trained() -> Job:
    job = Job(World(ranks=2)).steps(12)
    job.calls = {
        rank: [(*call[:3], LINE if call[2] == TOKENS else "") for call in calls]
        for rank, calls in job.calls.items()
    }
    job.operations(0).operations(1).stack(0, LINE)
    return job


def own(job: Job, rank: int) -> list[Call]:
    """Its own code's calls, and where it went on after each."""
    calls = [call for call in job.calls[rank] if call[2] == TOKENS]
    return [event for call in calls for event in (call, WENT_ON, WENT_ON)]


def call(job: Job, rank: int, what: str, *, told: bool) -> Call:
    """One more call of the rank's own code, of which it tells or does not."""
    before = job.entered[rank]["0"]
    job.enters(what, ranks=(rank,), source=LINE) if told else None
    return ("0", before + 1, what, LINE)


def raised(job: Job, rank: int) -> list[Event]:
    """What a rank that survives the abort of its peer says, in this order."""
    world = job.world
    return [
        (
            f"{rank} raises",
            lambda: world.raises(rank, "RuntimeError", from_peer=True, message=RESET),
        ),
        (f"{rank} tells", lambda: job.operations(rank, "raised")),
    ]


def skipped(job: Job) -> list[list[Event]]:
    """Rank 1 leaves a collective out; gloo aborts rank 0 in it, and nobody can say anything."""
    job.world.phase(1, m.Phase.BACKWARD)
    last = call(job, 0, TOKENS, told=False)
    return [
        [
            ("0 aborts", lambda: job.world.kill(0, signal=6)),
            ("1 ends", lambda: job.world.ended(1, signal=15)),
        ],
        [("0 left", lambda: job.left_behind(0, [*own(job, 0), last]))],
        [("1 left", lambda: job.left_behind(1, [*own(job, 1), WENT_ON, WENT_ON]))],
    ]


def wrong_size(job: Job) -> list[list[Event]]:
    """Rank 1 reduces something else; gloo aborts rank 0, and rank 1 lives to tell."""
    last = call(job, 0, TOKENS, told=False)
    odd = call(job, 1, "all_reduce [1024] int64", told=True)
    return [
        [
            ("0 aborts", lambda: job.world.kill(0, signal=6)),
            ("0 left", lambda: job.left_behind(0, [*own(job, 0), last])),
            ("1 ends", lambda: job.world.exits(1, 1)),
            ("1 left", lambda: job.left_behind(1, [*own(job, 1), odd])),
        ],
        raised(job, 1),
    ]


def by_itself(job: Job) -> list[list[Event]]:
    """Rank 1 aborts of itself, and rank 0 feels it where it always is."""
    call(job, 0, TOKENS, told=True)
    return [
        [
            ("1 aborts", lambda: job.world.kill(1, signal=6)),
            ("1 left", lambda: job.left_behind(1, own(job, 1))),
            ("0 ends", lambda: job.world.exits(0, 1)),
        ],
        raised(job, 0),
    ]


def orders(senders: list[list[Event]]) -> Iterator[list[Event]]:
    """All ways to put together what each sender says in its own order."""
    turns = [index for index, events in enumerate(senders) for _ in events]
    for order in sorted(set(itertools.permutations(turns))):
        taken = [iter(events) for events in senders]
        yield [next(taken[index]) for index in order]


@pytest.mark.parametrize(
    ("scene", "kind"),
    [
        (skipped, "collective-mismatch"),
        (wrong_size, "collective-mismatch"),
        (by_itself, "rank-dead"),
    ],
)
def test_the_order_in_which_word_comes_changes_no_verdict(
    scene: Callable[[Job], list[list[Event]]], kind: str
) -> None:
    """Nobody else is accused on the way, either; and it stands when all is told, or soon after."""
    count = len(list(orders(scene(trained()))))
    for number in range(count):
        job = trained()
        events = list(orders(scene(job)))[number]
        names = [name for name, _ in events]
        job.hang(0.25)
        seen: list[Finding] = []
        for _, happens in events:
            happens()
            job.world.now_s += 0.01
            seen += [f for f in job.world.findings() if f.severity == "critical"]
        job.world.now_s += 1.0
        seen += (last := job.world.findings())
        assert {(f.kind, *f.ranks) for f in seen} == {(kind, 1)}, names
        assert [f.severity for f in last] == ["critical"], names
