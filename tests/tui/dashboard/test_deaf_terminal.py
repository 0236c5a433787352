"""A terminal that stops reading, as a suspended SSH client does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ranks import SyntheticRun
from support.runs import RANKSCOPE
from support.terminal import Terminal
from support.wire import Hub, hub_process, wait_until

pytestmark = pytest.mark.processes

PATIENCE_S = 90.0


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as started:
        yield started


def top(hub: Hub) -> Terminal:
    home = str(hub.directory.path.parent.parent)
    command = [*RANKSCOPE, "top", "--readonly", hub.directory.run]
    return Terminal(command, columns=120, rows=40, env={"RANKSCOPE_HOME": home})


def test_a_deaf_terminal_holds_up_nobody_and_sees_the_newest_afterwards(hub: Hub) -> None:
    """Hub, ranks and another dashboard go on; once it reads again it shows what is then, and not
    what it missed."""
    with SyntheticRun(hub) as ranks, hub.connect("viewer") as client, top(hub) as deaf:
        deaf.wait_for("✓ healthy", within_s=PATIENCE_S)
        deaf.fill()
        before = client.status().step
        with top(hub) as other:
            other.wait_for("✓ healthy", within_s=PATIENCE_S)
            ranks.kill(2)
            other.wait_for("rank-dead", "SIGKILL", within_s=PATIENCE_S)
        client.wait_for_view("status", lambda status: status.verdict is not None, PATIENCE_S)
        assert client.status().step > before
        assert deaf.process.poll() is None
        deaf.wait_for("rank-dead", "SIGKILL", "● live", within_s=PATIENCE_S)


def test_what_waits_for_a_deaf_terminal_is_bounded(hub: Hub) -> None:
    """Snapshots replace each other: the process does not grow while nobody reads."""
    with SyntheticRun(hub), top(hub) as deaf:
        deaf.wait_for("✓ healthy", within_s=PATIENCE_S)
        deaf.press("2")  # by then all of it is loaded
        deaf.wait_for("a step", within_s=PATIENCE_S)
        deaf.fill()
        status = Path(f"/proc/{deaf.process.pid}/status")

        def resident_kib() -> int:
            (line,) = [row for row in status.read_text().splitlines() if row.startswith("VmRSS")]
            return int(line.split()[1])

        before = resident_kib()
        with hub.connect("viewer") as client:
            step = client.status().step
            wait_until(lambda: client.status().step > step + 50, "fifty steps", PATIENCE_S)
        assert resident_kib() < before + 8 * 1024
