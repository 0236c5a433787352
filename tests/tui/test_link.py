"""What a connection's events mean, in words and exit codes."""

from collections.abc import Sequence

import pytest

from rankscope.protocol.exits import Exit
from rankscope.tui.feed.link import Cause, Event, LinkError, LinkState

HERE = "tcp://127.0.0.1:9"


def after(*events: Event) -> LinkError:
    """The error once ``events`` have come, by themselves or when patience ends."""
    link = LinkState(HERE)
    try:
        for event in events:
            link.note(event)
    except LinkError as error:
        return error
    return link.timed_out(5.0)


@pytest.mark.parametrize(
    ("events", "cause", "code"),
    [
        (["delayed", "closed", "retried"], "nobody", Exit.UNREACHABLE),
        (["retried", "retried"], "address", Exit.UNREACHABLE),
        (["delayed", "connected", "denied"], "denied", Exit.UNREACHABLE),
        (
            [*["delayed", "connected", "broken-handshake", "lost", "retried"] * 2],
            "other-hub",
            Exit.UNREACHABLE,
        ),
        (["delayed", "connected"], "silent", Exit.TIMED_OUT),
        (["delayed", "connected", "ready"], "silent", Exit.TIMED_OUT),
        (["delayed", "connected", "ready", "lost", "delayed", "closed"], "nobody", 3),
    ],
)
def test_each_trouble_has_its_own_words(events: Sequence[Event], cause: Cause, code: int) -> None:
    """Nobody there, no such host, key not admitted, another hub, silence: told apart."""
    error = after(*events)
    assert (error.cause, error.exit_code) == (cause, code)
    assert "\n" not in str(error)
    assert HERE in str(error)


@pytest.mark.parametrize("events", [["delayed", "connected"], ["delayed", "connected", "ready"]])
def test_what_is_known_of_a_silent_hub_s_process_is_told(events: list[Event]) -> None:
    """Instead of a question; of one that nobody listens for, it would mean nothing."""
    link = LinkState(HERE)
    for event in events:
        link.note(event)
    error = link.timed_out(2.0, "its process 7 is stopped; let it go on: kill -CONT 7")
    assert (error.cause, error.exit_code) == ("silent", Exit.TIMED_OUT)
    assert "for 2.0 s: its process 7 is stopped" in str(error)
    assert "?" not in str(error)
    link.note("closed")
    assert "process" not in str(link.timed_out(2.0, "its process 7 is stopped"))


@pytest.mark.parametrize("process", ["", "its process 7 is stopped"])
@pytest.mark.parametrize("events", [["delayed", "connected"], ["delayed", "connected", "ready"]])
def test_what_is_shown_of_a_silence_that_goes_on_does_not_say_how_long_one_question_waited(
    events: list[Event], process: str
) -> None:
    """It would stand there, the same, however long the silence has become."""
    link = LinkState(HERE)
    for event in events:
        link.note(event)
    error = link.timed_out(2.0, process)
    assert "2.0 s" in str(error)
    assert "2.0" not in error.standing
    assert HERE in error.standing
    assert process in error.standing
    assert str(error).replace(" for 2.0 s", "").replace(" within 2.0 s", "") == error.standing
    denied = after("delayed", "connected", "denied")
    assert denied.standing == str(denied)


def test_one_broken_handshake_is_forgiven() -> None:
    """A hub that is just ending may break one off; then it is a matter of the next try."""
    link = LinkState(HERE)
    for event in ("delayed", "connected", "broken-handshake", "lost", "connected", "ready"):
        link.note(event)
    assert link.ready


def test_a_host_that_cannot_be_found_is_not_a_closed_port() -> None:
    """Waiting for a restart is worth while only where something could listen."""
    link = LinkState(HERE)
    assert link.nobody
    link.note("delayed")
    assert not link.nobody
    link.note("closed")
    assert link.nobody
