"""``rankscope drill --script``: faults in a training script that knows nothing of them."""

import json
from pathlib import Path

import pytest

from rankscope.protocol.faulttable import IN_SCRIPTS
from rankscope.trainers.faults.script import INSTALL
from rankscope.tui.drill.scripts import last_line
from support.drills import drill
from support.outside import nothing_left

SCRIPT = str(Path(__file__).with_name("programs") / "script.py")


def test_what_can_be_drilled_in_a_script_is_what_is_promised() -> None:
    """The table in the protocol and the faults that there are name the same."""
    assert tuple(INSTALL) == IN_SCRIPTS


@pytest.mark.processes
def test_deaths_and_stops_in_a_users_script_are_called_what_they_are(
    tmp_path: Path,
) -> None:
    """Each phase is struck where torch's hooks show it, in the step that was asked for."""
    home = tmp_path / "home"
    wanted = ["sigkill@1:7:backward", "exit0@0:6:data", "sigstop@1:5:optimizer", "abort@1:9"]
    with nothing_left(home, within_s=60):
        ran = drill(home, *wanted, "--script", SCRIPT, "--json", "--", "--steps", "1000000")
    assert ran.returncode == 0, ran
    rows = json.loads(ran.stdout)
    assert [row["fault"] for row in rows] == wanted
    assert [row["injected"]["where"]["phase"] for row in rows] == [
        *("backward", "data", "optimizer", "forward")
    ]
    assert "script.py, 2 ranks" in ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--unattached"], "script.py never attached: call rankscope.agent.attach"),
        (["--corpus", "gone"], "exit code 1 before step 12: FileNotFoundError: no corpus gone"),
        (["--steps", "3"], "script.py was over before step 12"),
    ],
)
def test_a_script_that_cannot_be_drilled_is_told_in_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    """Exit 2; nothing runs on and no run directory is kept."""
    home = tmp_path / "home"
    with nothing_left(home, within_s=60):
        ran = drill(home, "sigkill", "--script", SCRIPT, "--json", "--", *arguments)
    assert ran.returncode == 2, ran
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not [path for path in home.glob("runs/*") if path.name != "latest"]


def test_the_first_error_of_an_output_is_quoted(tmp_path: Path) -> None:
    """Not what the launcher says of it later; nothing for an output without one."""
    log = tmp_path / "log"
    log.write_text("[rank1]: Traceback\n[rank1]:   x\n[rank1]: ValueError: no\nChildFailedError: y")
    assert last_line(log) == "ValueError: no"
    log.write_text("step 1: loss 2\n")
    assert last_line(log) == ""
    assert last_line(tmp_path / "none") == ""
