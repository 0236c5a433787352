"""Which run is meant, and which are live: those that go on, not those whose hub still serves."""

import os
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import rundir
from rankscope.protocol.exits import UserError
from rankscope.protocol.procs import start_time_s
from rankscope.tui.runs import listed

ME = rundir.HubProcess(os.getpid(), start_time_s(os.getpid()) or 0.0)


def made(home: Path, run: str, **changes: object) -> rundir.RunDirectory:
    """A run whose hub this process plays."""
    directory = rundir.create(home, run, command=["true"], name="", now_s=float(len(run)))
    info = msgspec.structs.replace(directory.read_info(), hub=ME, **changes)
    directory.write_info(info)
    return directory


def test_a_run_that_ended_is_ended_while_somebody_looks_at_it(tmp_path: Path) -> None:
    """Its hub serves a dashboard yet; its state and its exit code are known."""
    made(tmp_path, "a", ended_s=12.0, exit_code=3)
    made(tmp_path, "bb")
    states = {each.run: (each.state, each.exit_code) for each in listed(tmp_path)}
    assert states == {"a": ("ended", 3), "bb": ("live", None)}


def test_a_run_whose_hub_is_not_up_yet_is_starting_and_after_a_minute_stale(tmp_path: Path) -> None:
    """A new run is no trouble; one that never came to have a hub is."""
    directory = made(tmp_path, "a")
    directory.write_info(msgspec.structs.replace(directory.read_info(), hub=None, created_s=100.0))
    assert [each.state for each in listed(tmp_path, 102.0)] == ["starting"]
    assert [each.state for each in listed(tmp_path, 200.0)] == ["stale"]
    gone = rundir.HubProcess(2**22 + 5, 1.0)
    directory.write_info(msgspec.structs.replace(directory.read_info(), hub=gone))
    assert [each.state for each in listed(tmp_path, 102.0)] == ["stale"]


def test_the_only_live_run_is_meant_though_an_ended_one_has_a_hub(tmp_path: Path) -> None:
    """Two hubs, one run that goes on: there is nothing to choose."""
    made(tmp_path, "a")
    made(tmp_path, "bb", ended_s=12.0, exit_code=0)
    assert rundir.find_run(tmp_path, None).run == "a"


def test_with_no_live_run_the_newest_is_meant(tmp_path: Path) -> None:
    """Whatever its hub does."""
    made(tmp_path, "a", ended_s=1.0)
    made(tmp_path, "bb", ended_s=2.0)
    assert rundir.find_run(tmp_path, None).run == "bb"


def test_an_exact_id_is_meant_though_others_begin_with_it(tmp_path: Path) -> None:
    """And so is a unique beginning, but not one of several."""
    made(tmp_path, "run-1")
    made(tmp_path, "run-10")
    assert rundir.find_run(tmp_path, "run-1").run == "run-1"
    assert rundir.find_run(tmp_path, "run-10").run == "run-10"
    with pytest.raises(UserError, match="run-10, run-1"):
        rundir.find_run(tmp_path, "run")
