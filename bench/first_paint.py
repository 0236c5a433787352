"""How long ``rankscope top`` takes until the verdict is on the screen.

On a quiet machine over a hub fed from a recording, and beside a run of two ranks, where a bare
Textual application started in turn with it is the measure.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import _figure

from rankscope.protocol.messages import RunEnd
from support.ranks import SyntheticRun
from support.terminal import Terminal
from support.wire import Hub, hub_process

RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))
QUIET_ROUNDS, BESIDE_ROUNDS = 11, 9
RECORDED_S = 3.0
BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("the bare application is up")

Bare().run(mouse=False)
"""
VERDICTS = ("✓ ", "✗ ", "! ", "◌ starting")


def verdict_is_shown(text: str) -> bool:
    """Whether the second line holds a verdict, not that the hub is still being asked."""
    lines = text.splitlines()
    return len(lines) > 1 and lines[1].strip().startswith(VERDICTS)


def bare_is_shown(text: str) -> bool:
    return "the bare application is up" in text


def until_shown_s(command: list[str], shown: Callable[[str], bool], env: dict[str, str]) -> float:
    """Seconds from starting ``command`` in a terminal of 80×24 to its screen being ``shown``."""
    with Terminal(command, env=env) as terminal:
        terminal.wait(shown, within_s=60.0)
        taken_s = time.monotonic() - terminal.started_s
        terminal.process.kill()
    return taken_s


@contextmanager
def recorded_run(home: Path) -> Iterator[Hub]:
    """A run of eight synthetic ranks that is over, its recording in its directory."""
    with hub_process(home) as hub:
        with SyntheticRun(hub, 8):
            time.sleep(RECORDED_S)
        with hub.connect("agent") as peer:
            peer.send(RunEnd(0))
            peer.ping()  # it has heard both
        hub.terminate()
        yield hub


@contextmanager
def replaying_hub(hub: Hub) -> Iterator[list[str]]:
    """A hub that serves the recording; the options with which ``top`` finds it."""
    command = [sys.executable, "-m", "rankscope.hub", "--replay", str(hub.directory.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline())
        key = hub.directory.path / "bench-key.json"
        key.touch(mode=0o600)
        key.write_text(json.dumps(said["key"]))
        yield ["--endpoint", said["endpoint"], "--key", str(key)]
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@contextmanager
def training(home: Path) -> Iterator[dict[str, str]]:
    """Two ranks that train for real; the environment in which ``top`` finds their run."""
    env = {"RANKSCOPE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = [RANKSCOPE, "demo", "--headless", "--ranks", "2", "--steps", "1000000"]
    with (home / "demo.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + 120
        while not trains(env):
            assert process.poll() is None, (home / "demo.log").read_text()
            assert time.monotonic() < deadline_s, "the training run did not start"
            time.sleep(0.5)
        yield env
    finally:
        process.terminate()
        process.wait(60)


def trains(env: dict[str, str]) -> bool:
    """Whether the run has made a few steps."""
    answer = subprocess.run(
        [RANKSCOPE, "status", "--json"],
        env={**os.environ, **env},
        capture_output=True,
        check=False,
    )
    return answer.returncode == 0 and json.loads(answer.stdout)["step"] >= 3


def until_keys_work_s(command: list[str], env: dict[str, str]) -> float:
    """Seconds from starting ``command`` to the table of ranks, for which a key was pressed."""
    with Terminal(command, env=env) as terminal:
        terminal.wait(verdict_is_shown, within_s=60.0)
        terminal.press("2")
        terminal.wait_for("a step", within_s=60.0)
        taken_s = time.monotonic() - terminal.started_s
        terminal.process.kill()
    return taken_s


def quiet() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = {"RANKSCOPE_HOME": folder}
        with recorded_run(home) as hub:
            with replaying_hub(hub) as options:
                command = [RANKSCOPE, "top", "--readonly", *options]
                tops, bares = [], []
                for _ in range(QUIET_ROUNDS):
                    tops.append(until_shown_s(command, verdict_is_shown, env))
                    bares.append(until_shown_s([sys.executable, "-c", BARE], bare_is_shown, env))
                keys = [until_keys_work_s(command, env) for _ in range(5)]
            _figure.figure(
                "first_paint",
                round(median(tops), 3),
                "s",
                0.7,
                what="rankscope top to the verdict on screen, hub fed from a recording",
                slowest_s=round(max(tops), 3),
                rounds=len(tops),
                bare_textual_s=round(median(bares), 3),
                load_1min=round(os.getloadavg()[0], 2),
            )
            _figure.figure(
                "first_paint_keys",
                round(median(keys), 3),
                "s",
                None,
                what="the same, to the screen that a key pressed at first paint opens",
                rounds=len(keys),
            )
            ended = [RANKSCOPE, "top", hub.directory.run]
            ends = [until_shown_s(ended, verdict_is_shown, env) for _ in range(5)]
            _figure.figure(
                "first_paint_ended_run",
                round(median(ends), 3),
                "s",
                None,
                what="the same, with top itself starting the hub that replays an ended run",
                rounds=len(ends),
            )


def beside_training() -> None:
    with tempfile.TemporaryDirectory() as folder, training(Path(folder)) as env:
        tops, bares = [], []
        for _ in range(BESIDE_ROUNDS):
            tops.append(until_shown_s([RANKSCOPE, "top"], verdict_is_shown, env))
            bares.append(until_shown_s([sys.executable, "-c", BARE], bare_is_shown, env))
        _figure.figure(
            "first_paint_beside_training",
            round(median(tops) / median(bares), 3),
            "ratio",
            2.0,
            what="rankscope top over a bare Textual application, both beside a 2-rank run",
            top_s=round(median(tops), 3),
            bare_textual_s=round(median(bares), 3),
            rounds=len(tops),
        )


if __name__ == "__main__":
    quiet()
    beside_training()
