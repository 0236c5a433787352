"""What the dashboard does when it cannot go on: no terminal, or a fault of its own."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.protocol.exits import Exit, UserError
from rankscope.tui.dashboard.app import run_dashboard
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.source import Source
from rankscope.tui.feed.poller import Poller, Snapshot
from support.scenes import SCENES
from support.terminal import Terminal

# A feed whose second snapshot nothing can draw, or is none at all, with a secret in the frames that
# fail.
BROKEN = """
import os, sys
from dataclasses import replace
from rankscope.tui.dashboard.app import run_dashboard
from rankscope.tui.dashboard.source import Source
from rankscope.tui.feed.timesource import TimeSource
from support.scenes import SCENES

class Feed:
    def __init__(self, put):
        self.put, self.secret = put, SECRET
        self.latest = SCENES["healthy-2"]()
        self.times = TimeSource(can_go_back=False)
    def start(self):
        import threading
        threading.Thread(target=self.play, daemon=True).start()
    def play(self):
        import time
        self.put(self.latest)
        while not os.path.exists(sys.argv[3]):
            time.sleep(0.01)
        self.put(self if sys.argv[2] == "taken" else replace(self.latest, status=self))
    def stop(self, timeout_s):
        pass
    def request_view(self, wanted):
        pass

    def request_rank(self, rank):
        pass

SECRET = sys.argv[1]
sys.exit(run_dashboard(Source(Feed, "x")))
"""


def test_without_a_terminal_it_says_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """No escapes into a pipe, and no feed is started."""
    started: list[object] = []

    def feed(put: object) -> Poller:
        started.append(put)
        raise AssertionError

    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "__stdin__", nothing)
        with pytest.raises(UserError, match="rankscope status") as caught:
            run_dashboard(Source(feed, "x"))
    assert caught.value.exit_code is Exit.USAGE
    assert not started


@pytest.mark.processes
@pytest.mark.parametrize("fails_when", ["drawn", "taken"])
def test_its_own_fault_leaves_a_clean_terminal_and_a_crash_file_without_values(
    tmp_path: Path, fails_when: str
) -> None:
    """One line, exit code 70, and a traceback in a private file that shows no local variable."""
    secret = "s3cr3t-key-material"
    tests = str(Path(__file__).resolve().parents[2])
    seen = tmp_path / "seen"
    command = [sys.executable, "-c", BROKEN, secret, fails_when, str(seen)]
    env = {"TMPDIR": str(tmp_path), "PYTHONPATH": tests}
    with Terminal(command, columns=120, env=env) as terminal:
        terminal.wait_for("✓ healthy")
        terminal.press("2")
        terminal.wait_for("a step")  # not only the first picture is there, but all that runs
        seen.touch()
        assert terminal.exit_code() == Exit.BUG
        assert terminal.unclean() == []
        said = bytes(terminal.raw)
        assert b"rankscope: the dashboard failed: AttributeError" in said
        assert b"Traceback" not in said
        assert secret.encode() not in said
    (crash,) = tmp_path.glob("rankscope-crash-*.txt")
    assert crash.stat().st_mode & 0o077 == 0
    text = crash.read_text()
    assert "Traceback" in text
    assert "AttributeError" in text
    assert secret not in text


def test_a_snapshot_says_at_once_what_one_must_know() -> None:
    """A new verdict, a lost hub and a page's coming are drawn at once, new numbers wait."""

    def news(scene: str, **changes: object) -> tuple[object, ...]:
        snapshot: Snapshot = replace(SCENES[scene](), **changes)  # type: ignore[arg-type]
        return Picture(snapshot).news

    assert news("healthy-8") == news("healthy-8", hub_s=5.0)
    assert news("healthy-8") != news("dead")
    assert news("healthy-8") != news("away")
