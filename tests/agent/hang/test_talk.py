"""What goes over the wire of a stall, of what is expected and of what was asked."""

import io
import json
import sys
import time
from typing import Any, TypeVar

import pytest
import torch

from rankscope.agent import events
from rankscope.agent.evidence import evidence, recorder, stacks
from rankscope.agent.evidence.expecting import told_by
from rankscope.agent.farewell import Letter
from rankscope.agent.identity import Identity
from rankscope.agent.observer import Observer
from rankscope.agent.talk import WATCHED_S, Sequence, Talk
from rankscope.protocol import codec
from rankscope.protocol import messages as m

Found = TypeVar("Found", bound=m.Message)


class Rank:
    """Rank 1 of two, which talks when a test says so; ``hears`` is what its hub says next."""

    def __init__(self) -> None:
        self.observer = Observer()
        self.talk = Talk(self.observer, "test", 0, Sequence())
        self.talk.identity = Identity(1, 2, 1, 0)
        self.talk.run, self.talk.host = "run", "host"
        self.letter = Letter()

    def note(self, code: int, *more: Any) -> None:
        self.observer.noted.append((code, time.monotonic(), *more))

    def turn(self, *hears: m.Message, later_s: float = 0.0) -> None:
        for message in hears:
            self.talk._heard(message)
        self.talk.read_notes()
        self.talk.turn(self.letter, time.monotonic() + later_s)

    def said(self, kind: type[Found]) -> list[Found]:
        messages = [codec.decode(frame) for frame in self.letter.frames]
        return [message for message in messages if isinstance(message, kind)]


@pytest.fixture
def rank() -> Rank:
    return Rank()


def test_only_its_own_questions_are_answered(rank: Rank) -> None:
    """One connection may carry several ranks, and a hub may be newer than this agent."""
    rank.turn(m.Inquire(0, ("stacks",)), m.Inquire(1, ("nonsense",)))
    assert not rank.said(m.Stacks)
    rank.turn(m.Inquire(1, ("stacks", "nonsense")))
    (stacks,) = rank.said(m.Stacks)
    assert (stacks.why, stacks.rank) == ("asked", 1)


def test_whoever_is_asked_for_checksums_says_soon_what_is_new_for_a_while(rank: Rank) -> None:
    """Other questions, and those to another rank, change nothing."""
    rank.turn()
    rank.note(events.BEGIN_BACKWARD)
    now = time.monotonic()
    rank.turn(m.Inquire(0, ("checksums",)), m.Inquire(1, ("stacks", "parameter_norms")))
    assert rank.talk.calm(now)
    rank.turn(m.Inquire(1, ("stacks", "checksums")))
    rank.note(events.BEGIN_OPTIMIZER)
    asked_s = time.monotonic()
    assert rank.talk.goes_on(asked_s)
    assert not rank.talk.calm(asked_s)
    later_s = asked_s + WATCHED_S
    rank.observer.noted.append((events.END_OPTIMIZER, later_s))
    assert rank.talk.calm(later_s)


def test_a_rank_that_advances_is_not_held_up_by_a_question(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its recorder is not dumped; one that stands still, or has few entries, is read in full."""
    dumped: list[int] = []

    def dumps() -> list[Any]:
        dumped.append(1)
        return []

    monkeypatch.setattr(recorder, "dumps", dumps)
    monkeypatch.setattr(evidence, "FEW", -1)
    rank.turn()
    rank.note(events.BEGIN_BACKWARD)
    rank.turn(m.Inquire(1, ("operations",)))
    (operations,) = rank.said(m.Operations)
    assert operations.note == evidence.ADVANCING
    assert not dumped
    for count, change in enumerate(({"STILL_S": 0.0}, {"STILL_S": 9.0, "FEW": 400}), 1):
        for name, value in change.items():
            monkeypatch.setattr(evidence, name, value)
        rank.turn(m.Inquire(1, ("operations",)), later_s=count * 1.5)
        assert len(dumped) == count


def test_evidence_that_fails_is_off_and_the_rest_goes_on(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, as of a probe."""

    def fails(*args: object) -> None:
        raise OSError("no luck")

    monkeypatch.setattr(stacks, "read", fails)
    rank.turn(m.Inquire(1, ("stacks",)))
    rank.turn(m.Inquire(1, ("stacks",)), later_s=1.0)
    rank.turn(later_s=2.0)
    (fault,) = rank.said(m.ProbeFault)
    assert (fault.probe, fault.error) == ("evidence", "OSError: no luck")
    assert len(rank.said(m.Beat)) >= 2


def test_what_is_expected_and_that_the_data_is_over_go_with_the_beats(rank: Rank) -> None:
    """Each change is told at the next turn."""
    rank.turn()
    with rank.talk.expecting.declared("evaluation"):
        rank.turn()
    rank.note(events.BEGIN_DATA)
    rank.note(events.DATA_OVER)
    rank.note(events.END_DATA)
    rank.turn()
    rank.note(events.BEGIN_DATA)
    rank.turn()
    told = [(beat.expecting, beat.data_over) for beat in rank.said(m.Beat)]
    assert told == [("", False), ("evaluation", False), ("", True), ("", False)]


def test_the_collectives_of_a_rank_that_raises_are_told(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after the exception, as its launcher ends all others then."""
    entry = {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": time.time_ns(),
        "state": "scheduled",
    }
    dumped = json.dumps({"entries": [entry]}).encode()
    monkeypatch.setattr(recorder, "dumps", lambda: [lambda **_: dumped])
    rank.observer.raised(ValueError("enough"))
    rank.turn()
    kinds = [type(codec.decode(frame)) for frame in rank.letter.frames]
    assert kinds.index(m.Operations) > kinds.index(m.Raised)
    (operations,) = rank.said(m.Operations)
    assert (operations.why, len(operations.operations)) == ("raised", 1)


def test_a_rank_that_raises_before_its_first_collective_tells_of_none(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exception is all there is."""
    monkeypatch.setattr(recorder, "dumps", lambda: [lambda **_: b'{"entries": []}'])
    rank.observer.raised(ValueError("enough"))
    rank.turn()
    assert rank.said(m.Raised)
    assert not rank.said(m.Operations)


def test_a_compilation_is_told_by_its_stack() -> None:
    """Dynamo is not hooked for it; a compiled function at work is no compilation."""
    found: list[str] = []

    def here() -> str:
        return told_by(stacks.places(sys._getframe()))

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(here())
        return graph.forward

    def body(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    torch.compile(body, backend=backend)(torch.ones(3))
    assert found == ["compilation"]


def test_a_checkpoint_is_told_by_its_stack() -> None:
    """Of torch.save, while it pickles."""
    found: list[str] = []

    class Tells:
        def __reduce__(self) -> tuple[Any, ...]:
            found.append(told_by(stacks.places(sys._getframe())))
            return (list, ())

    torch.save({"it": Tells()}, io.BytesIO())
    assert found[0] == "checkpoint"


def test_ranks_of_a_large_world_say_less_by_themselves() -> None:
    """All of them may stall at once; asked, each says all it knows."""
    frame = m.Frame("/home/me/train.py", 1, "main")
    threads = (m.Thread("MainThread", True, (frame,) * 60), m.Thread("other", False, (frame,)))
    assert evidence.unasked_threads(threads, 256) == threads
    (short,) = evidence.unasked_threads(threads, 1024)
    assert short.main
    assert len(short.frames) == evidence.SHORT_FRAMES
    assert evidence.unasked_threads(threads, 16384) == ()
    counts = [evidence.unasked_operations(size) for size in (1, 64, 1024, 16384)]
    assert counts == [256, 256, 16, 8]


@pytest.mark.parametrize(
    "note",
    [(events.BEGIN_FORWARD, False), (events.END_FORWARD,), (events.WAITED, 0.01)],
)
def test_who_notes_anything_goes_on(note: tuple[Any, ...], rank: Rank) -> None:
    """Also where that is no other phase, as in an evaluation, and where it was read already."""
    now = time.monotonic()
    assert not rank.talk.goes_on(now + 60.0)
    rank.observer.noted.append((note[0], now + 60.0, *note[1:]))
    for _ in range(2):
        assert rank.talk.goes_on(now + 60.05)
        assert not rank.talk.goes_on(now + 120.0)
        rank.turn()
