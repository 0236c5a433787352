"""A command on a run that cannot follow it: asked, told why, and given up again."""

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import (
    HANGS,
    STANDS,
    CheckpointsView,
    Command,
    Finding,
    Overview,
    Severity,
    Status,
)
from rankscope.tui import asking, source
from rankscope.tui.words.commands import NEEDS_ALL
from support.scenes import SCENES

ASKED, CANCELLING = 7, 8
ACROSS = ["checkpoint", "stop"]


def standing(kind: str, severity: Severity = "critical") -> Status:
    """Rank 3 is what the others wait for."""
    status = SCENES["healthy-8"]().status
    assert status is not None
    found = Finding(kind, severity, [3], [0, 1], 8, 9.0, "rank 3 is not there", [], "")
    rows = [
        msgspec.structs.replace(row, process="stopped")
        if row.rank == 3 and kind == "rank-stopped"
        else row
        for row in status.ranks
    ]
    state = "stalled" if kind in HANGS else "running"
    return msgspec.structs.replace(status, state=state, verdict=found, findings=[found], ranks=rows)


class Hub:
    """A hub that accepts what it is asked for, and whose ranks can be told to give it up."""

    run_words = ""
    replay = False

    def __init__(self, status: Status, within: str = "waiting", ends_at: int = 10**9) -> None:
        overview = SCENES["healthy-8"]().overview
        assert overview is not None
        self.status, self.within, self.ends_at = status, within, ends_at
        self.overview = msgspec.structs.replace(overview, launcher_pid=4711, launcher_host="node-a")
        self.given: list[str] = []
        self.looks = 0
        self.authors: list[str] = []

    def command(self, name: str, *, author: str, **_: Any) -> m.CommandReply:
        self.given.append(name)
        self.authors.append(author)
        reference = CANCELLING if name == "cancel" else ASKED
        return m.CommandReply(1, True, f"asked 8 ranks: {name}", reference)

    def ask(self, view: str, **_: Any) -> SimpleNamespace:
        whole: dict[str, Status | Overview | CheckpointsView] = {
            "status": self.status,
            "overview": self.overview,
        }
        return SimpleNamespace(body=whole.get(view) or self.checkpoints())

    def checkpoints(self) -> CheckpointsView:
        self.looks += 1
        name = self.given[0]
        over = []
        if "cancel" in self.given:
            over = [
                Command(ASKED, name, "ada", 1.0, "cancelled", "cancelled by ada"),
                Command(CANCELLING, "cancel", "ada", 1.0, "done", "cancelled by ada"),
            ]
        elif self.looks >= self.ends_at:
            over = [Command(ASKED, name, "ada", 1.0, "done", "done after step 9")]
        now = None if over else Command(ASKED, name, "ada", 1.0, self.within, "waits")
        return CheckpointsView("r", "", 0, [], 0, None, [], None, commands=over, command=now)


def give(
    hub: Hub, command: str, monkeypatch: pytest.MonkeyPatch, *, json: bool = False, **more: Any
) -> int:
    @contextmanager
    def opened(_given: Namespace) -> Iterator[Hub]:
        yield hub

    monkeypatch.setattr(source, "open_client", opened)
    monkeypatch.setattr(asking, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(asking, "LOOK_EVERY_S", 0.0)
    options = {"no_wait": False, "wait": False, "timeout": 60, "json": json} | more
    return asking.ask(Namespace(**options), command)


@pytest.mark.parametrize("kind", sorted(STANDS))
@pytest.mark.parametrize("command", NEEDS_ALL)
def test_what_cannot_happen_is_given_up_at_once_and_said_so(
    command: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1; nothing stays asked for, so that nothing stops or saves behind one's back."""
    hub = Hub(standing(kind))
    assert give(hub, command, monkeypatch) == Exit.PROBLEM
    assert hub.given == [command, "cancel"]
    asked, cancelled = hub.authors  # nobody has asked for the second, says the log
    assert cancelled == f"rankscope {command.replace('-and-', ' and ')} ({asked})"
    told = capsys.readouterr()
    first = told.err.splitlines()[0]
    assert "cannot reach the end of a step (rank 3 is not there)" in first
    assert "it is given up" in first
    assert "--wait" in first
    assert "rankscope cancel" not in told.err
    if kind in HANGS:
        assert "kill 4711; or Ctrl-C where it was started" in told.err
    assert "✗ cancelled by ada" in told.out


@pytest.mark.parametrize("command", ACROSS)
def test_who_wants_to_wait_for_it_all_the_same_can(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--wait``: a rank that is stopped, or only slow, may go on; told once, then waited for."""
    hub = Hub(standing("gil-held"), ends_at=5)
    assert give(hub, command, monkeypatch, wait=True) == Exit.FINE
    assert hub.given == [command]
    told = capsys.readouterr()
    assert told.err.count("cannot reach the end of a step") == 1
    assert "rankscope cancel gives it up now" in told.err


@pytest.mark.parametrize(
    ("kind", "severity"),
    [(kind, mild) for kind in sorted(STANDS) for mild in ("info", "warning")]
    + [("link-lost", "critical"), ("straggler", "critical")],
)
def test_what_may_yet_happen_is_waited_for(
    kind: str, severity: Severity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspicion, and a rank that the hub does not hear, are no knowledge that it cannot come."""
    hub = Hub(standing(kind, severity), ends_at=5)
    assert give(hub, "stop", monkeypatch) == Exit.FINE
    assert hub.given == ["stop"]


def test_a_hang_found_while_it_is_waited_for_counts_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it was said before that a rank is late."""
    hub = Hub(standing("missing-collective", "info"))
    checkpoints = hub.checkpoints

    def later() -> CheckpointsView:
        if hub.looks == 3:
            hub.status = standing("missing-collective")
        return checkpoints()

    monkeypatch.setattr(hub, "checkpoints", later)
    assert give(hub, "checkpoint", monkeypatch) == Exit.PROBLEM
    assert hub.given == ["checkpoint", "cancel"]
    assert "it is given up" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["checkpoint", "checkpoint-and-stop"])
def test_a_save_that_has_its_parts_is_not_given_up(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ranks were at their boundary: it is written whatever hangs after that."""
    hub = Hub(standing("missing-collective"), within="saving", ends_at=5)
    assert give(hub, command, monkeypatch) == Exit.FINE
    assert hub.given == [command]
    assert "cannot reach" not in capsys.readouterr().err


def test_the_document_tells_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--json``, one document as ever."""
    assert give(Hub(standing("gil-held")), "stop", monkeypatch, json=True) == Exit.PROBLEM
    told = json.loads(capsys.readouterr().out)
    assert told["command"]["state"] == "cancelled"
    assert told["command"]["command"] == "stop"


def test_only_asking_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--no-wait`` leaves it with the ranks, and says who does not come and how to cancel it."""
    hub = Hub(standing("gil-held"))
    assert give(hub, "stop", monkeypatch, no_wait=True) == Exit.FINE
    assert hub.given == ["stop"]
    assert "rankscope cancel gives it up now" in capsys.readouterr().err


@pytest.mark.parametrize("answered", ["refused", "silent"])
def test_where_the_ranks_do_not_answer_that_is_said(
    answered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No word that it was cancelled before it was: it stays to be cancelled."""
    hub = Hub(standing("gil-held"))
    checkpoints, command = hub.checkpoints, hub.command

    def mute() -> CheckpointsView:
        now = Command(ASKED, "stop", "ada", 1.0, "waiting", "to be cancelled")
        text = "pending: to be cancelled, but rank 3 has not answered"
        return msgspec.structs.replace(checkpoints(), commands=[], command=now, pending=text)

    def refuses(name: str, **more: Any) -> m.CommandReply:
        reply = command(name, **more)
        text = "bob has asked for that already; rank 3 has not answered"
        return reply if name != "cancel" else m.CommandReply(1, False, text, 0)

    monkeypatch.setattr(hub, "checkpoints", mute)
    if answered == "refused":
        monkeypatch.setattr(hub, "command", refuses)
    monkeypatch.setattr(asking, "CANCELLED_S", 0.0)
    with pytest.raises(UserError, match=r"not given up yet: .*rank 3 has not answered") as raised:
        give(hub, "stop", monkeypatch)
    assert raised.value.exit_code == Exit.PROBLEM
    assert capsys.readouterr().out == ""
