"""What is said before a command is given, as the run is."""

import msgspec
import pytest

from rankscope.protocol.shapes import HANGS, Checkpoint, Finding, Overview, Status
from rankscope.tui.words import numbers
from rankscope.tui.words.commands import NEEDS_ALL, STANDING, consequences, held_back
from support.scenes import SCENES, numerics


def healthy(state: str = "running") -> Status:
    status = SCENES["healthy-8"]().status
    assert status is not None
    return msgspec.structs.replace(status, state=state)


@pytest.mark.parametrize("command", STANDING)
def test_ranks_that_are_paused_do_what_is_asked_where_they_stand(command: str) -> None:
    """At the step after which they stand, not at a later one; only a stop has them go on."""
    status = healthy("paused")
    told = " ".join(consequences(command, status))
    assert f"where they stand, after step {numbers.count(status.step)}" in told
    assert "train on" not in told
    assert "about step" not in told
    assert ("stay paused" in told) == (command != "stop")


@pytest.mark.parametrize("command", ["checkpoint", "checkpoint-and-stop"])
@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_save_of_parameters_that_are_not_finite_says_so(command: str, state: str) -> None:
    """With the ranks, since when, and which checkpoint is older than that."""
    finding = numerics.NAN
    assert finding.step is not None
    spoilt = msgspec.structs.replace(healthy(state), findings=[finding], last_checkpoint=None)
    told = " ".join(consequences(command, spoilt))
    assert (
        f"Parameters are not finite on ranks 0–7 since step {numbers.count(finding.step)}" in told
    )
    assert "will hold them; there is none before it" in told
    older = Checkpoint(finding.step - 1, "/ck", True)
    told = " ".join(consequences(command, msgspec.structs.replace(spoilt, last_checkpoint=older)))
    assert f"the newest before it is of step {numbers.count(older.step)}" in told
    newer = Checkpoint(finding.step + 1, "/ck", True)
    told = " ".join(consequences(command, msgspec.structs.replace(spoilt, last_checkpoint=newer)))
    assert f"as the newest, of step {numbers.count(newer.step)}, may" in told
    assert "not finite" not in " ".join(consequences("stop", spoilt))
    assert "not finite" not in " ".join(consequences(command, healthy(state)))


def hung(kind: str, state: str) -> tuple[Status, Overview]:
    """Rank 3 is what the others wait for; its run was started by process 4711 on node-a."""
    snapshot = SCENES["healthy-8"]()
    overview = snapshot.overview
    assert overview is not None
    found = Finding(kind, "critical", [3], [0, 1], 8, 9.0, "rank 3 is not there", [], "", {})
    status = msgspec.structs.replace(healthy(state), verdict=found, findings=[found])
    return status, msgspec.structs.replace(overview, launcher_pid=4711, launcher_host="node-a")


@pytest.mark.parametrize("state", ["running", "stalled"])
@pytest.mark.parametrize("kind", sorted(HANGS))
@pytest.mark.parametrize("command", NEEDS_ALL)
def test_a_command_that_a_hang_holds_back_says_so_at_once(
    command: str, kind: str, state: str
) -> None:
    """From the verdict on: who does not come, why, and how the run is ended; before it is asked
    for as well as once it is waited for."""
    status, overview = hung(kind, state)
    told = held_back(command, status, overview)
    assert told[0].startswith("rank 3 is stuck and cannot reach the end of a step (rank 3 is not")
    assert "rankscope cancel" in told[0]
    assert told[1].endswith("on node-a: kill 4711; or Ctrl-C where it was started")
    asked = " ".join(consequences(command, status, overview))
    assert "rank 3 is stuck and cannot reach the end of a step" in asked
    assert "kill 4711" in asked
    assert "end their loop at the same step" not in asked


@pytest.mark.parametrize("command", [*NEEDS_ALL, "resume", "cancel"])
def test_of_a_run_that_moves_nothing_is_said_to_be_held_back(command: str) -> None:
    """Nor of commands that need no boundary."""
    _, overview = hung("missing-collective", "running")
    assert held_back(command, healthy(), overview) == []
    if command not in NEEDS_ALL:
        assert held_back(command, *hung("missing-collective", "stalled")) == []
