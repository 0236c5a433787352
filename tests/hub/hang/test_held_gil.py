"""A rank that is mute because its interpreter is held."""

import pytest

from rankscope.protocol import messages as m
from support.collectives import TOKENS, Job
from support.hangs import only, training
from support.world import World


def test_a_mute_rank_that_is_seen_to_hold_its_gil_is_called_so() -> None:
    """Silent, alive, and read from outside: the line that keeps the interpreter."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.stack(1, "native.py:4 in call", outside=True, holds_gil=True)
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("gil-held", [1], [0])
    assert (found.severity, found.where["source"]) == ("info", "native.py:4 in call")
    assert "is alive; its main thread was waiting at the last look" in found.evidence[0]
    job.world.ranks[1].ready_since_s = job.world.now_s - 0.2
    job.world.report("node-0")
    assert "waiting" not in only(job).evidence[0]
    job.hang(1.0).stack(1, "native.py:4 in call", outside=True, holds_gil=True)
    assert (only(job).kind, only(job).severity) == ("gil-held", "critical")


def test_a_thread_that_goes_on_does_not_keep_the_gil() -> None:
    """Read at another line each time, it computes, and the agent's thread got no turn."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    for line in range(20):
        job.stack(1, f"compiler.py:{line + 1} in trace", outside=True, holds_gil=True).hang(1.0)
        assert "critical" not in [finding.severity for finding in job.world.findings()]


def test_one_reading_does_not_make_a_held_gil_critical() -> None:
    """However long ago it was: nobody knows whether it is there still."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.stack(1, "native.py:4 in call", outside=True, holds_gil=True).hang(6.0)
    assert (only(job).kind, only(job).severity) == ("gil-held", "info")


def test_in_the_first_step_a_held_gil_is_a_notice_for_half_a_minute() -> None:
    """Libraries that are loaded and code that is compiled keep it."""
    job = Job(World(ranks=2))
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,))
    for _ in range(25):
        job.hang(1.0).stack(1, "loader.py:4 in load", outside=True, holds_gil=True)
        assert "critical" not in [finding.severity for finding in job.world.findings()]
    for _ in range(10):
        job.hang(1.0).stack(1, "loader.py:4 in load", outside=True, holds_gil=True)
    assert (only(job).kind, only(job).severity) == ("gil-held", "critical")


def test_a_garbage_collection_is_not_called_a_held_gil() -> None:
    """Seen in native frames, it is no finding for half a minute."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.stack(1, "gcmodule.c:0 in gc_collect_main", outside=True, holds_gil=True)
    assert job.world.findings() == []


def test_a_thread_that_keeps_the_gil_and_computes_is_a_notice_for_half_a_minute() -> None:
    """A garbage collection that no native frame names; or it has no core on a busy machine."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.world.ranks[1].ready_since_s = job.world.now_s
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    for _ in range(25):
        job.stack(1, "odd.py:23 in <module>", outside=True, holds_gil=True).hang(1.0)
        assert [one.severity for one in job.world.findings()] == ["info"]
    assert "or ready to run all the time" in only(job).evidence[0]
    for _ in range(10):
        job.stack(1, "odd.py:23 in <module>", outside=True, holds_gil=True).hang(1.0)
    assert (only(job).kind, only(job).severity) == ("gil-held", "critical")


def test_while_it_is_a_notice_it_is_the_verdict_of_a_run_that_stands_still() -> None:
    """Whatever else is found that is not critical: none of that says why nothing moves."""
    job = training(ranks=2)
    job.world.hello(0, facts={"torch": "2.13.0"})
    job.world.hello(1, facts={"torch": "2.12.0"})
    job.world.ranks[1].mute = True
    job.world.ranks[1].ready_since_s = job.world.now_s
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    for _ in range(18):
        job.stack(1, "odd.py:23 in <module>", outside=True, holds_gil=True).hang(1.0)
    status = job.world.status()
    assert status.state == "stalled"
    assert {one.severity for one in status.findings} == {"info", "warning"}
    assert status.verdict is not None
    assert (status.verdict.kind, status.verdict.ranks) == ("gil-held", [1])
    assert job.world.overview().verdict == status.verdict


def test_a_thread_that_begins_to_wait_while_it_keeps_the_gil_is_no_notice_then() -> None:
    """What it did before it waited excuses nothing."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.world.ranks[1].ready_since_s = job.world.now_s
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.world.ranks[1].ready_since_s = None
    for _ in range(5):
        job.stack(1, "native.py:4 in call", outside=True, holds_gil=True).hang(1.0)
    assert (only(job).kind, only(job).severity) == ("gil-held", "critical")


def test_a_mute_rank_is_asked_from_outside_only_when_the_others_wait() -> None:
    """The reading of a rank that goes on is never wanted."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.world.replies()
    job.world.advance(3.0, moving=True)
    asked = [what for _, what in job.world.replies() if isinstance(what, m.Inquire)]
    assert not [one for one in asked if "foreign_stacks" in one.what]
    job.world.advance(2.0)
    asked = [what for _, what in job.world.replies() if isinstance(what, m.Inquire)]
    assert m.Inquire(1, ("foreign_stacks",)) in asked


@pytest.mark.parametrize(
    ("since_beat_s", "says_it_stands", "asked"),
    [(0.45, False, False), (0.45, True, True), (0.56, False, True)],
)
def test_others_between_two_beats_go_on_unless_they_have_said_that_they_stand(
    since_beat_s: float, says_it_stands: bool, asked: bool
) -> None:
    """Whoever goes on speaks every 0.45 s: a mute rank beside him is not read from outside."""
    job = training(ranks=2)
    world = job.world
    for host in world.hosts:
        world.report(host)
    world.ranks[1].mute = True
    for _ in range(9):
        world.step(0, step_s=0.1)
    if says_it_stands:
        world.now_s += 0.15
        world.beat(0)
        since_beat_s -= 0.15
    world.now_s += since_beat_s
    world.replies()
    world.tick()
    inquiries = [what for _, what in world.replies() if isinstance(what, m.Inquire)]
    assert (m.Inquire(1, ("foreign_stacks",)) in inquiries) is asked
