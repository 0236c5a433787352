"""Attaching in the middle of a hang: nobody has to wait for the screen to find out."""

import threading
from collections.abc import Callable

import pyte
import pytest

from rankscope.protocol import messages as m
from rankscope.tui.dashboard.first_paint import escapes
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.overview import OverviewScreen
from rankscope.tui.feed.poller import Snapshot
from support.collectives import TOKENS, Job
from support.inprocess import PATIENCE_S, feed
from support.world import World

Hang = Callable[[], World]


def never_entered() -> World:
    """Rank 2 is in forward, the others wait for it in a collective."""
    job = Job(World(ranks=4)).steps(12)
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(0.75)
    for rank in (0, 1, 3):
        job.operations(rank).stack(rank)
    job.stack(2, "model.py:7 in forward").hang(10.0)
    return job.world


def loader() -> World:
    """Rank 1 waits for a batch that does not come."""
    job = Job(World(ranks=4)).steps(12)
    job.world.phase(1, m.Phase.DATA)
    job.enters(TOKENS, ranks=(0, 2, 3)).hang(0.75)
    for rank in (0, 2, 3):
        job.operations(rank).stack(rank)
    job.stack(1, "train.py:118 in batches").hang(30.0)
    return job.world


def fabric() -> World:
    """All have entered, and none leaves."""
    job = Job(World(ranks=4)).steps(12)
    job.enters(TOKENS).hang(0.75)
    for rank in range(4):
        job.operations(rank).stack(rank)
    job.hang(30.0)
    return job.world


def stopped() -> World:
    """Rank 3 was stopped."""
    job = Job(World(ranks=4)).steps(12)
    job.enters(TOKENS, ranks=(0, 1, 2))
    job.world.stop(3)
    job.hang(10.0)
    return job.world


@pytest.mark.parametrize(
    ("hang", "words"),
    [
        (never_entered, ("missing-collective", "rank 2", "model.py:7")),
        (loader, ("loader-stalled", "rank 1")),
        (fabric, ("collective-stuck",)),
        (stopped, ("rank-stopped", "rank 3")),
    ],
)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_first_picture_has_the_verdict_with_its_culprit(
    hang: Hang, words: tuple[str, ...], width: int, height: int
) -> None:
    """What is drawn before anything else is loaded: who, in what, and how to go on."""
    mailbox: Mailbox[Snapshot] = Mailbox()
    poller = feed(hang(), threading.RLock())(mailbox.put)
    poller.start()
    try:
        first = mailbox.peek(PATIENCE_S)
    finally:
        poller.stop(PATIENCE_S)
    assert first is not None
    lines = OverviewScreen().layout(Picture(first), Room(width, height, first.taken_t_s))
    screen = pyte.Screen(width, height)
    pyte.Stream(screen).feed(escapes(lines.lines(height), utf8=True, colour=True))
    head = " ".join(" ".join(screen.display[:9]).split())
    assert "✗" in head
    for word in (*words, "v evidence", "next"):
        assert word in head, head
