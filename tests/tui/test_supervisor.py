"""Keeping a run's hub alive."""

from pathlib import Path

import pytest

from rankscope.protocol.restart import STEADY_S, WORTH_SAYING
from rankscope.tui.launcher.supervisor import Supervisor
from support.wire import new_run

pytestmark = pytest.mark.processes


def test_a_hub_that_is_slow_to_fail_has_not_lived_long(tmp_path: Path) -> None:
    """On a busy machine it may take many seconds to find that it cannot start."""
    directory = new_run(tmp_path)
    supervisor = Supervisor(directory)
    supervisor.start()
    try:
        assert supervisor._hub is not None
        supervisor._hub.kill()
        supervisor._hub.wait()
        key = directory.key_path("hub")
        key.rename(key.with_suffix(".hidden"))
        now_s, said = 0.0, []
        for _ in range(2 * WORTH_SAYING):
            now_s += 40.0  # longer than any pause, and than STEADY_S
            said.append(supervisor.poll(now_s))
            assert supervisor._hub is not None
            supervisor._hub.wait()
        assert STEADY_S < 40.0
        (words,) = filter(None, said)
        assert "the hub keeps dying" in words
        assert "hub key" in words
    finally:
        supervisor.end()


def test_between_the_end_of_a_hub_and_the_start_of_the_next_it_is_restarting(
    tmp_path: Path,
) -> None:
    """Whoever supervises looks often then, and else waits for a child's end to be signalled."""
    supervisor = Supervisor(new_run(tmp_path))
    supervisor.start()
    try:
        supervisor.poll(0.0)
        assert not supervisor.restarting
        assert supervisor._hub is not None
        supervisor._hub.kill()
        supervisor._hub.wait()
        supervisor.poll(1.0)
        assert supervisor.restarting
        supervisor.poll(100.0)
        assert not supervisor.restarting
        assert supervisor._hub.poll() is None
    finally:
        supervisor.end()
