"""A recording in a real terminal, and going back from the live view."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import rundir
from rankscope.tui.cli import main
from rankscope.tui.moments import moment, on_the_clock
from support.ranks import SyntheticRun
from support.runs import RANKSCOPE, environment
from support.terminal import Terminal
from support.wire import Hub, hub_process

PATIENCE_S = 90.0


@pytest.mark.parametrize("text", ["start", "end", "incident", "23:04", "2026-11-29 23:04:17"])
def test_moments_that_can_be_named(text: str) -> None:
    """An end, an incident, a time of the clock; seconds from the start are a number."""
    assert moment(text) == text
    assert moment("+90") == 90.0


@pytest.mark.parametrize(
    "text",
    [
        *("yesterday", "25", "-3", "+", "1:2:3:4", ""),
        *("25:00", "12:60", "12:00:61", "2026-02-30 12:00", "2026-13-01T10:00", "0000-01-01 1:00"),
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    """With the forms that are ones."""
    with pytest.raises(Exception, match="23:04:17"):
        moment(text)


def test_a_time_without_a_day_is_the_last_such_time() -> None:
    """In a recording that ends at one in the night, 23:04 is of the evening before."""
    last_s = time.mktime((2026, 11, 30, 1, 0, 0, 0, 0, -1))
    assert on_the_clock("23:04:17", last_s) == time.mktime((2026, 11, 29, 23, 4, 17, 0, 0, -1))
    assert on_the_clock("0:30", last_s) == time.mktime((2026, 11, 30, 0, 30, 0, 0, 0, -1))
    assert on_the_clock("2026-11-28 12:00", last_s) < last_s - 86_400


@pytest.mark.parametrize("at", ["2026-11-27 12:00", "2026-12-01 00:00", "12:00"])
def test_a_time_that_the_run_does_not_have_is_refused_before_anything_is_started(
    at: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There is no recording that could be read: when the run began and ended is enough."""
    began_s = time.mktime((2026, 11, 29, 20, 0, 0, 0, 0, -1))
    directory = rundir.create(
        tmp_path, "20261129-200000-abcdef", command=["x"], name="", now_s=began_s
    )
    directory.write_info(
        msgspec.structs.replace(directory.read_info(), ended_s=began_s + 4 * 3600.0)
    )
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path.parent))
    assert main(["replay", str(directory.path), "--at", at]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "the run goes from 2026-11-29 20:00:00 to 2026-11-30 00:00:00" in told


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as started:
        yield started


def start(hub: Hub, *words: str) -> Terminal:
    env = {**os.environ, "RANKSCOPE_HOME": str(hub.directory.path.parent.parent)}
    return Terminal([*RANKSCOPE, *words, hub.directory.run], columns=100, rows=30, env=env)


@pytest.mark.processes
def test_from_the_live_view_back_over_a_death_and_to_live_again(hub: Hub) -> None:
    """[ goes back, the verdict of then is shown, } finds the incident, End is live."""
    with SyntheticRun(hub) as ranks, start(hub, "top", "--control") as terminal:
        terminal.wait_for("✓ healthy", within_s=PATIENCE_S)
        with hub.connect("viewer") as client:
            client.wait_for_view("status", lambda status: status.step >= 20, PATIENCE_S)
            ranks.kill(2)
            client.wait_for_view("status", lambda status: status.verdict is not None, PATIENCE_S)
        terminal.wait_for("rank-dead", within_s=PATIENCE_S)
        terminal.press("[", "[", "[")
        terminal.wait_for("◀ PAST", "paused", "▲", within_s=PATIENCE_S)
        terminal.wait(lambda text: "rank-dead" not in text, within_s=PATIENCE_S)
        terminal.press("c")
        terminal.wait_for("not live", within_s=PATIENCE_S)
        terminal.press("}")
        terminal.wait_for("◀ PAST", "rank-dead", "SIGKILL", within_s=PATIENCE_S)
        terminal.press("p")
        terminal.wait_for("playing", within_s=PATIENCE_S)
        terminal.press("end")
        terminal.wait(lambda text: "PAST" not in text and "rank-dead" in text, within_s=PATIENCE_S)
        terminal.press("p")
        terminal.wait_for("FROZEN", within_s=PATIENCE_S)
        terminal.press("p")
        terminal.wait(lambda text: "FROZEN" not in text, within_s=PATIENCE_S)


@pytest.mark.processes
def test_a_recording_is_played_from_its_start_or_an_incident(hub: Hub) -> None:
    """The same screens, and bad moments are told in one line."""
    with SyntheticRun(hub) as ranks, hub.connect("viewer") as client:
        client.wait_for_view("status", lambda status: status.step >= 20, PATIENCE_S)
        ranks.kill(1)
        client.wait_for_view("status", lambda status: status.verdict is not None, PATIENCE_S)
    hub.terminate()
    with start(hub, "replay", "--speed", "0.25") as terminal:  # at its end it would stand still
        terminal.wait_for("◀ PAST", "playing ×0.25", within_s=PATIENCE_S)
        terminal.press("+")
        terminal.wait_for("×0.5", within_s=PATIENCE_S)
    with start(hub, "replay", "--at", "incident") as terminal:
        terminal.wait_for("◀ PAST", "rank-dead", "SIGKILL", within_s=PATIENCE_S)
        terminal.press("2")
        terminal.wait_for("a step", "SIGKILL", within_s=PATIENCE_S)
        terminal.press("q")
        assert terminal.exit_code(within_s=PATIENCE_S) == 0
        assert terminal.unclean() == []
    late = subprocess.run(
        [*RANKSCOPE, "replay", hub.directory.run],
        env=environment(hub.directory.path.parent.parent),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert late.returncode == 2
    assert late.stderr.count("\n") == 1
    assert "rankscope status" in late.stderr
