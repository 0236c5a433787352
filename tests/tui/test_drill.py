"""``rankscope drill`` from outside: real runs with real faults, and what is left of them."""

import json
import signal
import sys
from pathlib import Path

import pytest

from rankscope.protocol.faulttable import FAULTS
from support.drills import drill
from support.outside import nothing_left, rankscope, refused, started
from support.runs import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sigkil"], "did you mean sigkill?"),
        (["sigkill@9:1"], "there is no rank 9 among 2"),
        (["sigkill@1:0"], "there is no step 0"),
        (["--ranks", "0"], "at least 1 rank"),
        (["--at", "top"], "--at top"),
        (["--attach", "none"], "--attach none"),
        (["--trainer", "jax"], "--trainer jax"),
        (["--script", "no-such.py"], "no-such.py: no such file"),
        (["nan-input", "--script", __file__], "needs the help of rankscope's own trainers"),
        (["sigkill@1:3:nose", "--script", __file__], "is no phase"),
        (["environment@1:1:nose", "--script", __file__], "NAME=VALUE"),
        (["sigkill", "--script", "."], "it is no file"),
        (["sigkill", "--", "train.py"], "--script FILE"),
        (["--wait", "0"], "--wait"),
        (["sigkill", "--out", "/no/such/folder/file"], "no such file"),
    ],
)
def test_a_wrong_drill_is_refused_in_one_line(home: Path, arguments: list[str], words: str) -> None:
    """Exit 2, before anything is started or written."""
    with nothing_left(home):
        refused(rankscope(home, "drill", *arguments), 2, words)
    assert not list(home.glob("runs/*"))


def test_the_faults_are_listed(home: Path) -> None:
    """Each in a line, with what it must be called."""
    ran = rankscope(home, "drill", "--list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == [fault.name for fault in FAULTS]


def test_a_killed_rank_is_called_that_exactly_and_not_drilled_again(
    home: Path, tmp_path: Path
) -> None:
    """Exit 0 and one JSON document; the run is gone; a second drill takes the row from its file."""
    rows = tmp_path / "rows.jsonl"
    with nothing_left(home, within_s=60):
        first = drill(home, "sigkill", "--json", "--out", str(rows))
        assert first.returncode == 0, first
        (row,) = json.loads(first.stdout)
        assert row["fault"] == "sigkill@1:12"
        assert row["injected"] == {
            "ranks": [1],
            "step": 12,
            "kind": "rank-dead",
            "where": {"phase": "forward"},
        }
        assert (row["found"]["kind"], row["found"]["ranks"]) == ("rank-dead", [1])
        assert (row["exact"], row["note"]) == (True, "")
        assert row["latency_s"] >= 0
        assert not [path for path in home.glob("runs/*") if path.name != "latest"]
        second = drill(home, "sigkill", "--json", "--out", str(rows))
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert "1 of 1 exact" in second.stderr


def test_a_hang_ends_within_its_time_and_its_run_is_kept_if_it_was_not_called_right(
    home: Path,
) -> None:
    """Also ranks that hold the GIL are ended."""
    with nothing_left(home, within_s=60):
        ran = drill(home, "gil-held", "--wait", "2", "--json")
        (hang,) = json.loads(ran.stdout)
        assert ran.returncode == (0 if hang["exact"] else 1)
        assert hang["injected"]["kind"] == "gil-held"
        kept = [path.name for path in home.glob("runs/*") if path.name != "latest"]
        assert len(kept) == (0 if hang["exact"] else 1)
        assert all(name in hang["note"] for name in kept)


def test_an_interrupted_drill_leaves_nothing_running(home: Path) -> None:
    """Ctrl-C while ranks train: exit 130, ranks, sentinel and hub are gone."""
    with (
        nothing_left(home, within_s=60),
        started(home, "drill", "sigkill@1:1000000", PYTHON_EXEC=sys.executable) as process,
    ):
        wait_until(lambda: list(home.glob("runs/*/command.log")), "a run")
        log = next(home.glob("runs/*/command.log"))
        wait_until(
            lambda: "step     1/" in log.read_text() or "parameters" in log.read_text(), "ranks"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
