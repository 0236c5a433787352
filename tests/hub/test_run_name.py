"""A run is called the same in its dashboard and in the list of runs, and judged the same."""

from pathlib import Path

from rankscope.hub.live import _RunFile
from rankscope.hub.log import Log
from rankscope.protocol import rundir
from rankscope.protocol.shapes import Finding
from rankscope.tui.runs import listed
from support.world import World


def test_the_name_that_ranks_give_is_the_run_s_name_in_its_directory(tmp_path: Path) -> None:
    """``attach(name=…)`` or the script's name, where the launcher was given none."""
    directory = rundir.create(
        tmp_path, "run-1", command=["python", "-m", "torch.distributed.run"], name="", now_s=1.0
    )
    world = World(ranks=2)
    name = world.state.name
    assert name, "its ranks have given one"
    _RunFile(directory, directory.read_info(), Log()).ranks_said(2, name)
    assert directory.read_info().name == name
    assert directory.read_info().world_size == 2
    assert rundir.find_run(tmp_path, name).path == directory.path


def test_an_ended_run_is_judged_in_the_list_as_in_its_dashboard(tmp_path: Path) -> None:
    """By the verdict at its end, not by the last line of its log, and also when it comes late."""
    directory = rundir.create(tmp_path, "run-1", command=["x"], name="", now_s=1.0)
    book = _RunFile(directory, directory.read_info(), Log())
    book.run_ended(2.0, 1, None)
    assert listed(tmp_path)[0].severity is None
    hang = Finding("missing-collective", "critical", [1], [0], 12, 3.0, "rank 1 never", [], "", {})
    book.run_ended(3.0, 1, hang)
    (run,) = listed(tmp_path)
    assert (run.severity, run.headline) == ("critical", "rank 1 never")
    assert run.ended_s == 2.0
    book.run_ended(None, None, hang)
    assert directory.read_info().headline is None
    assert directory.read_info().ended_s is None
