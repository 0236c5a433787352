"""The dashboard in a real terminal, over a real hub: seen and driven as a user would."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.ranks import SyntheticRun
from support.terminal import Terminal
from support.wire import Hub, hub_process

pytestmark = pytest.mark.processes

RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as hub:
        yield hub


@contextmanager
def top(hub: Hub, *, columns: int = 80, rows: int = 24, **env: str) -> Iterator[Terminal]:
    home = str(hub.directory.path.parent.parent)
    command = [RANKSCOPE, "top", hub.directory.run]
    with Terminal(
        command, columns=columns, rows=rows, env={"RANKSCOPE_HOME": home, **env}
    ) as terminal:
        yield terminal


def test_keys_lead_through_all_screens_and_q_leaves_the_terminal_clean(hub: Hub) -> None:
    """Overview, ranks, a rank's page, help and back again; q ends with 0 and a clean terminal."""
    with SyntheticRun(hub), top(hub) as terminal:
        terminal.wait_for("✓ healthy", "node-a", "3 ●", "? help")
        terminal.press("2")
        terminal.wait_for("▸    0", "phase", "a step")
        terminal.press("j")
        terminal.wait_for("▸    1")
        terminal.press("enter")
        terminal.wait_for("rank 1", "pid 4701", "collectives", "torch")
        terminal.press("l")
        terminal.wait_for("rank 2", "pid 4702")
        terminal.press("escape")
        terminal.wait_for("▸    2")
        terminal.press("?")
        terminal.wait_for("Screens", "Show all keys")
        terminal.press("escape")
        terminal.wait_for("▸    2")
        terminal.press("1")
        terminal.wait_for("agent cost", "checkpoint  none")
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert terminal.unclean() == []
        assert terminal.mode(1049) is False
        assert terminal.mode(1000) is None, "the mouse is never touched"


def test_filter_palette_question_and_resize_while_the_run_goes_on(hub: Hub) -> None:
    """Typed as over SSH: what is asked for is there, and what the hub refuses is said."""
    with SyntheticRun(hub), top(hub, columns=100) as terminal:
        terminal.wait_for("✓ healthy", "3 ●")
        terminal.press("2", "/", *"1-2")
        terminal.wait(lambda text: "/1-2" in text and "node-a" in text and "   3  ●" not in text)
        terminal.press("enter")
        terminal.wait_for("▸    1", "? help")
        terminal.press(":")
        terminal.wait_for("Search for commands")
        terminal.press(*"checkpoints")
        terminal.wait_for("How far a save is")
        terminal.press("enter")
        terminal.wait_for("what came of saves", "checkpoint  none yet")
        terminal.resize(140, 30)
        terminal.wait_for("what came of saves", "not now: the run is not paused")
        terminal.press("c")
        terminal.wait_for("commands are locked")
        terminal.press("u")
        terminal.wait_for("Unlock commands on this run?")
        terminal.press("y")
        terminal.wait_for("commands unlocked")
        terminal.press("c")
        terminal.wait_for("checkpoint, not now: ranks 0 1 2 3 gave no boundary yet")
        terminal.press("6")
        terminal.wait_for("on time", "backward", "waiting")
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert terminal.unclean() == []


def test_a_death_is_on_the_screen_with_its_culprit_and_its_evidence(hub: Hub) -> None:
    """The verdict comes while one watches, and v opens what it rests on."""
    with SyntheticRun(hub) as ranks, top(hub) as terminal:
        terminal.wait_for("✓ healthy")
        ranks.kill(2)
        terminal.wait_for("rank-dead", "SIGKILL", "2 ✗")
        terminal.press("v")
        terminal.wait_for("culprit", "rank 2", "evidence")
        terminal.press("enter")
        terminal.wait_for("rank 2", "pid 4702")


def test_attaching_after_a_death_shows_the_verdict_in_the_first_picture(hub: Hub) -> None:
    """Nobody has to wait for the screen to find out."""
    with SyntheticRun(hub) as ranks:
        ranks.kill(1)
        with hub.connect("viewer") as client:
            client.wait_for_view("status", lambda status: status.verdict is not None)
        with top(hub) as terminal:
            text = terminal.wait_for("rankscope", "quit")
            if "connecting" not in text:
                assert "rank-dead" in text
            terminal.wait_for("rank-dead", "SIGKILL")


def test_before_any_rank_the_screen_says_what_it_waits_for(hub: Hub) -> None:
    """An empty run is no error."""
    with top(hub) as terminal:
        terminal.wait_for("◌ starting", "no rank is here yet")
        with SyntheticRun(hub):
            terminal.wait_for("✓ healthy")


def test_a_hub_that_is_away_and_back_shows_as_that(hub: Hub) -> None:
    """Killed, the screen says so and keeps what it knew; back, it goes on by itself."""
    with SyntheticRun(hub), top(hub) as terminal:
        terminal.wait_for("✓ healthy")
        hub.kill()
        terminal.wait_for("NO HUB", "last known", "node-a")
        hub.start()
        terminal.wait(lambda text: "● live" in text and "NO HUB" not in text)


def test_quitting_does_not_wait_for_a_hub_that_is_stopped(hub: Hub) -> None:
    """A hub that never answers holds nobody: q ends the dashboard, cleanly."""
    assert hub.process is not None
    with SyntheticRun(hub), top(hub) as terminal:
        terminal.wait_for("✓ healthy")
        hub.process.send_signal(signal.SIGSTOP)
        try:
            terminal.wait_for("HUB SILENT", "last known", "kill -CONT")
            terminal.press("q")
            assert terminal.exit_code() == 0
            assert terminal.unclean() == []
        finally:
            hub.process.send_signal(signal.SIGCONT)


def test_a_resize_is_followed(hub: Hub) -> None:
    """Wider shows more, narrower less; the verdict stays."""
    with SyntheticRun(hub), top(hub) as terminal:
        terminal.wait_for("✓ healthy")
        terminal.resize(120, 40)
        terminal.wait(lambda text: "─" * 118 in text and "✓ healthy" in text)
        terminal.resize(50, 12)
        terminal.wait(
            lambda text: "✓ healthy" in text and "─" * 48 in text and "─" * 49 not in text
        )


def test_without_utf8_the_screen_is_ascii(hub: Hub) -> None:
    """LANG=C gets the same picture in plain signs."""
    with SyntheticRun(hub), top(hub, LANG="C") as terminal:
        text = terminal.wait_for("+ healthy", "node-a", "3 *")
        assert text.isascii()
        terminal.press("ctrl+p")
        assert terminal.wait_for("Search", "checkpoints (8)").isascii()


def test_no_color_sends_no_colour(hub: Hub) -> None:
    """NO_COLOR is kept, and the state is legible without."""
    with SyntheticRun(hub), top(hub, NO_COLOR="1") as terminal:
        terminal.wait_for("✓ healthy")
        assert not [code for code in colours(bytes(terminal.raw)) if code not in ("39", "49")]


@pytest.mark.parametrize("term", ["xterm-256color", "xterm", "linux", "vt220"])
def test_only_the_sixteen_colours_of_the_terminal_are_used(hub: Hub, term: str) -> None:
    """No true colour and no palette of 256: every terminal shows them, in half the bytes. Of its
    own colours the palette of actions uses no more than the terminal says it has."""
    with SyntheticRun(hub) as ranks, top(hub, TERM=term, COLORTERM="") as terminal:
        terminal.wait_for("✓ healthy")
        ranks.kill(0)
        terminal.wait_for("rank-dead")
        used = colours(bytes(terminal.raw))
        assert "31" in used or "41" in used
        assert not {"38", "48"} & used
        terminal.press("2", ":")
        terminal.wait_for("Search for commands")
        terminal.press("escape")
        terminal.wait(lambda text: "Search for commands" not in text)
        terminal.press("t", "q")
        assert terminal.exit_code() == 0
        assert terminal.unclean() == []
        if term != "xterm-256color":
            assert not {"38", "48"} & colours(bytes(terminal.raw))


def colours(raw: bytes) -> set[str]:
    """The codes of all colour sequences that were sent."""
    codes: set[str] = set()
    for sequence in re.findall(rb"\x1b\[([\d;]*)m", raw):
        codes |= set(sequence.decode().split(";"))
    return {code for code in codes if code.isdigit() and 30 <= int(code) <= 107}


def interrupt(terminal: Terminal) -> None:
    terminal.press("ctrl+c")


def terminate(terminal: Terminal) -> None:
    terminal.signal(signal.SIGTERM)


def hang_up_signal(terminal: Terminal) -> None:
    terminal.signal(signal.SIGHUP)


def sigint(terminal: Terminal) -> None:
    terminal.signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("end", "code"), [(interrupt, 130), (sigint, 130), (terminate, 143), (hang_up_signal, 129)]
)
def test_every_way_out_leaves_the_terminal_clean(
    hub: Hub, end: Callable[[Terminal], None], code: int
) -> None:
    """Alternate screen, cursor, mouse, paste mode and line settings are as before."""
    with top(hub) as terminal:
        terminal.wait_for("◌ starting")
        end(terminal)
        assert terminal.exit_code() == code
        assert terminal.unclean() == []
        assert "Traceback" not in terminal.text()


def test_a_lost_terminal_ends_the_dashboard(hub: Hub) -> None:
    """When the connection is gone nothing stays behind, and nothing spins."""
    with SyntheticRun(hub), top(hub) as terminal:
        terminal.wait_for("✓ healthy")
        terminal.lose()
        assert terminal.process.wait(60) in (129, -signal.SIGHUP)


def test_ctrl_z_stops_nothing(hub: Hub) -> None:
    """A stopped dashboard under a launcher would hang the terminal: the key means nothing."""
    with SyntheticRun(hub), top(hub) as terminal:
        terminal.wait_for("✓ healthy")
        terminal.press("ctrl+z", "2")
        terminal.wait_for("a step")


def test_sigterm_ends_it_although_the_terminal_does_not_read(hub: Hub) -> None:
    """A frozen terminal cannot keep the process: it ends with the signal's code."""
    with SyntheticRun(hub), top(hub, columns=200, rows=50) as terminal:
        terminal.wait_for("✓ healthy")
        terminal.fill()
        terminal.signal(signal.SIGTERM)
        assert terminal.process.wait(60) == 143
