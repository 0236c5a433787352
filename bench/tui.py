"""What the dashboard costs, through a real pseudo-terminal, over a fleet of synthetic ranks.

Bytes to the terminal, CPU, memory, how soon a key shows, and what a terminal does that stops
reading. ``--quick`` measures for shorter times.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import _figure
import psutil
from fleet import Ranks, fleet

from rankscope.protocol.launch import wait_for_hub
from support.terminal import Terminal
from support.wire import Hub, Peer, new_run, spawn

RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))
RANKS = 16_384
COLUMNS, ROWS = 120, 40
STALL_S = 15.0
START_WITHIN_S = 120.0
BYTES_AT_MOST, CALM_BYTES_AT_MOST = 8192, 2048
CPU_AT_MOST_PERCENT = 6.0
KEY_AT_MOST_MS = 80.0
MEMORY_AT_MOST_MB = 120.0


@contextmanager
def run_of(ranks: int, share: float, gpus: bool = False) -> Iterator[tuple[Hub, Ranks]]:
    """A hub and a fleet that talks to it."""
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(new_run(Path(folder)), ())
        hub.process = spawn(hub.directory)
        hub.info = wait_for_hub(hub.directory, hub.process, START_WITHIN_S)
        try:
            with fleet(hub.directory, ranks=ranks, share=share, gpus=gpus) as played:
                yield hub, played
        finally:
            hub.terminate(60.0)


def top(hub: Hub) -> Terminal:
    """``rankscope top`` on a terminal of 120×40."""
    home = hub.directory.path.parent.parent
    command = [RANKSCOPE, "top", "--readonly", hub.directory.run]
    env = {"RANKSCOPE_HOME": str(home)}
    return Terminal(command, columns=COLUMNS, rows=ROWS, env=env)


def read_for(terminal: Terminal, seconds: float) -> None:
    """Take in what comes, as a terminal does."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        terminal.read(min(0.2, left_s))


def steady(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """Bytes a second and CPU in percent of a core, over ``seconds``."""
    process = psutil.Process(terminal.process.pid)
    read_for(terminal, 2.0)
    bytes_before, cpu_before = len(terminal.raw), sum(process.cpu_times()[:2])
    start_s = time.monotonic()
    read_for(terminal, seconds)
    spent_s = time.monotonic() - start_s
    cpu_s = sum(process.cpu_times()[:2]) - cpu_before
    return (len(terminal.raw) - bytes_before) / spent_s, 100 * cpu_s / spent_s


def cost(name: str, ranks: int, share: float, seconds: float, gpus: bool) -> None:
    """Bytes, CPU and memory of the overview and of the table of ranks."""
    large = ranks >= RANKS
    with run_of(ranks, share, gpus) as (hub, _), top(hub) as terminal:
        terminal.wait_for("step/s", "healthy", within_s=60.0)
        process = psutil.Process(terminal.process.pid)
        terminal.press("2")  # keys work once all of the dashboard is loaded
        terminal.wait_for("a step", within_s=60.0)
        for key, screen, shows in (("1", "overview", "step/s"), ("2", "ranks", "a step")):
            terminal.press(key)
            terminal.wait_for(shows, within_s=60.0)
            sent, cpu = steady(terminal, seconds)
            detail = {"ranks": ranks, "share_changing": share, "screen": screen, "gpus": gpus}
            detail |= {"columns": COLUMNS, "rows": ROWS}
            limit = BYTES_AT_MOST if large else CALM_BYTES_AT_MOST if screen == "overview" else None
            _figure.figure(
                f"tui_{name}_bytes", round(sent), "B/s", limit, **detail, **_figure.load()
            )
            _figure.figure(
                f"tui_{name}_cpu",
                round(cpu, 1),
                "% of a core",
                CPU_AT_MOST_PERCENT if large else None,
                **detail,
                **_figure.load(),
            )
        if large:
            keys(terminal)
        memory = process.memory_info()
        _figure.figure(
            f"tui_{name}_memory",
            round(memory.rss / 1e6, 1),
            "MB",
            MEMORY_AT_MOST_MB if large else None,
            ranks=ranks,
            shared_mb=round(memory.shared / 1e6, 1),
        )


def cursor_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(" ▸")), "")


def keys(terminal: Terminal, rounds: int = 25) -> None:
    """Each key until the screen shows what it asks for, between regular updates and beside."""

    def moved(before: str) -> Callable[[str], bool]:
        return lambda text: cursor_line(text) not in ("", before)

    delays: dict[str, list[float]] = {}
    for at in range(rounds):
        for key, shown in (
            ("1", lambda text: "loss (mean)" in text or "step/s" in text),
            ("2", lambda text: "a step" in text),
            ("j", None),
            ("pagedown", None),
            ("G", lambda text: re.search(r"^ ▸ 16383 ", text, re.MULTILINE) is not None),
            ("g", lambda text: re.search(r"^ ▸ +0 ", text, re.MULTILINE) is not None),
        ):
            condition = shown or moved(cursor_line(terminal.text()))
            pressed_s = time.monotonic()
            terminal.press(key)
            terminal.wait(condition, within_s=20.0)
            # Until it was written: what the emulator makes of it takes its own time.
            delays.setdefault(key, []).append(terminal.came_s - pressed_s)
            read_for(terminal, 0.05 + 0.013 * (at % 10))
    all_ms = sorted(1000 * delay for each in delays.values() for delay in each)
    _figure.figure(
        "tui_key_p99",
        round(all_ms[min(len(all_ms) - 1, int(0.99 * len(all_ms)))], 1),
        "ms",
        KEY_AT_MOST_MS,
        ranks=RANKS,
        presses=len(all_ms),
        median_ms=round(all_ms[len(all_ms) // 2], 1),
        by_key_ms={key: round(1000 * sorted(d)[len(d) // 2], 1) for key, d in delays.items()},
        **_figure.load(),
    )  # fmt: skip


def keys_alone() -> None:
    """The keys, without what is measured before them."""
    with run_of(RANKS, 0.01) as (hub, _), top(hub) as terminal:
        terminal.wait_for("step/s", "healthy", within_s=60.0)
        terminal.press("2")
        terminal.wait_for("a step", within_s=60.0)
        keys(terminal)


def shown_step(text: str) -> int:
    """The step on the overview; -1 when there is none."""
    found = re.search(r"steps? +([\d\s]+\d)  ", text)
    return int(re.sub(r"\D", "", found[1])) if found else -1


def stalled_terminal(stall_s: float) -> None:
    """One of two terminals stops reading: the hub, the other one and the run go on."""
    with ExitStack() as stack:
        hub, _ = stack.enter_context(run_of(64, 1.0))
        viewer: Peer = stack.enter_context(hub.connect("viewer"))
        deaf = stack.enter_context(top(hub))
        other = stack.enter_context(top(hub))
        for terminal in (deaf, other):
            terminal.wait_for("step/s", "healthy", within_s=120.0)
        read_for(deaf, 2.0)
        deaf.fill()
        before = viewer.status().step
        slowest_s, other_late = 0.0, 0
        end_s = time.monotonic() + stall_s
        while time.monotonic() < end_s:
            asked_s = time.monotonic()
            step = viewer.status().step
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
            read_for(other, 0.4)
            other_late = max(other_late, step - shown_step(other.text()))
        made = viewer.status().step - before
        resumed_s = time.monotonic()
        now = viewer.status().step
        deaf.wait(lambda text: shown_step(text) >= now, within_s=60.0)
        _figure.figure(
            "tui_stalled_terminal_redraw",
            round(time.monotonic() - resumed_s, 2),
            "s",
            1.0,
            stalled_s=stall_s,
            steps_made_meanwhile=made,
            slowest_status_ms=round(1000 * slowest_s, 1),
            other_dashboard_behind_steps=other_late,
            **_figure.load(),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure for shorter times")
    parser.add_argument("--only", choices=("fleet", "gpus", "calm", "stall", "keys"))
    given = parser.parse_args()
    seconds = 6.0 if given.quick else 20.0
    if given.only in (None, "calm"):
        cost("calm", 8, 1.0, seconds, False)
    if given.only in (None, "fleet"):
        cost("fleet", RANKS, 0.01, seconds, False)
    if given.only == "keys":
        keys_alone()
    if given.only in (None, "gpus"):
        cost("fleet", RANKS, 0.01, seconds, True)
    if given.only in (None, "stall"):
        stalled_terminal(STALL_S)


if __name__ == "__main__":
    main()
