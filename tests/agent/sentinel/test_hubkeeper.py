"""A sentinel that restarts the hub which an agent had started."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from rankscope.agent.sentinel.hubkeeper import HubKeeper
from rankscope.protocol.procs import is_alive
from rankscope.protocol.restart import STEADY_S, WORTH_SAYING
from rankscope.protocol.rundir import RunDirectory, RunInfo, hub_is_alive
from support.sentinels import Launcher, make_node_dir, sentinel
from support.wire import hub_process, new_run, wait_until

pytestmark = pytest.mark.processes


@contextmanager
def hub_ended_at_last(directory: RunDirectory) -> Iterator[None]:
    """Ends whatever hub ``run.json`` names in the end, and waits until it is gone."""
    try:
        yield
    finally:
        end_hub(directory)


def end_hub(directory: RunDirectory) -> None:
    info = directory.read_info()
    if info.hub is not None and hub_is_alive(info):
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(info.hub.pid, signal.SIGTERM)
        hub = info.hub
        wait_until(lambda: not is_alive(hub.pid, hub.start_time_s), "the hub's end")


def has_new_hub(directory: RunDirectory, before: RunInfo) -> bool:
    now = directory.read_info()
    return now.hub != before.hub and hub_is_alive(now)


def test_a_killed_hub_is_started_again_on_its_endpoint(tmp_path: Path) -> None:
    """After kill -9 a new hub serves at the same place, and knows the node and its ranks."""
    directory = make_node_dir(tmp_path)
    with hub_process(tmp_path) as hub, Launcher() as launcher, hub_ended_at_last(hub.directory):
        key = hub.directory.read_key("agent")
        supervise = ("--supervise-hub", str(hub.directory.path))
        with sentinel(directory, hub.endpoint, key, *supervise):
            launcher.register(directory, 0)
            for _ in range(2):
                before = hub.directory.read_info()
                assert before.hub is not None
                os.kill(before.hub.pid, signal.SIGKILL)
                assert hub.process is not None
                hub.process.wait()  # the first one is this test's child
                wait_until(partial(has_new_hub, hub.directory, before), "a new hub")
                assert hub.directory.read_info().endpoint == hub.endpoint
            with hub.connect("viewer") as client:
                view = client.wait_for_view("overview", lambda view: view.nodes)
                assert view.nodes[0].gpu_note


def test_a_hub_that_ended_in_an_orderly_way_stays_ended(tmp_path: Path) -> None:
    """run.json then says when; nobody starts it again."""
    said: list[str] = []
    with hub_process(tmp_path) as hub:
        keeper = HubKeeper(hub.directory, said.append)
        hub.terminate()
        ended = hub.directory.read_info()
        assert ended.ended_s is not None
        for number in range(10):
            keeper.poll(time.monotonic() + number)
        assert hub.directory.read_info() == ended
        assert said == []


def test_a_hub_that_cannot_start_is_told_once_and_tried_on(tmp_path: Path) -> None:
    """With its key gone no hub can start: the log says so; with the key back there is a hub."""
    said: list[str] = []
    with hub_process(tmp_path) as hub, hub_ended_at_last(hub.directory):
        hub.kill()
        before = hub.directory.read_info()
        key = hub.directory.key_path("hub")
        hidden = key.rename(key.with_suffix(".hidden"))
        keeper = HubKeeper(hub.directory, said.append)
        skipped_s = 0.0

        def poll() -> None:
            nonlocal skipped_s
            if keeper._child is None:
                skipped_s += 0.05  # the pauses between tries are not waited for
            keeper.poll(time.monotonic() + skipped_s)

        def told() -> bool:
            poll()
            return bool(said)

        wait_until(told, "words about it", 60.0)
        assert "the hub keeps dying" in said[0]
        assert "hub key" in said[0]
        assert "sentinel: the hub keeps dying" in hub.log()
        hidden.rename(key)

        def back() -> bool:
            poll()
            return has_new_hub(hub.directory, before)

        wait_until(back, "a hub once it can start", 60.0)
        assert len(said) == 1
        keeper.close()


def test_a_hub_that_is_slow_to_fail_has_not_lived_long(tmp_path: Path) -> None:
    """On a busy machine it may take many seconds to find that it cannot start."""
    said: list[str] = []
    with hub_process(tmp_path) as hub:
        hub.kill()
        key = hub.directory.key_path("hub")
        key.rename(key.with_suffix(".hidden"))
        keeper = HubKeeper(hub.directory, said.append)
        now = time.monotonic()
        for _ in range(WORTH_SAYING):
            keeper.poll(now)
            now += 40.0  # longer than any pause
            keeper.poll(now)
            child = keeper._child
            assert child is not None
            child.wait()
            now += 2 * STEADY_S
        keeper.poll(now)
        assert "hub key" in said[0]
        keeper.close()


def test_a_run_whose_hub_never_bound_is_left_alone(tmp_path: Path) -> None:
    """Whoever made the run directory is still starting its hub."""
    said: list[str] = []
    directory = new_run(tmp_path)
    keeper = HubKeeper(directory, said.append)
    keeper.poll(time.monotonic())
    assert not directory.log.exists()
    directory.info_path.unlink()
    keeper.poll(time.monotonic())
    assert said == []
