"""Showing the dashboard for a run: the one place that ties feed, reach and dashboard together."""

import sys
from collections.abc import Callable
from pathlib import Path

from rankscope.protocol.keys import Role
from rankscope.protocol.rundir import RunDirectory
from rankscope.tui import reach
from rankscope.tui.dashboard.terminal import is_usable
from rankscope.tui.feed.poller import Connection, Poller, Snapshot

INTERVAL_S = 0.25


def on_terminal() -> bool:
    """Whether a dashboard can be shown here; what is piped elsewhere is wanted as text."""
    return sys.stdout.isatty() and is_usable()


def show(directory: RunDirectory, *, title: str, readonly: bool, ends_run: bool = False) -> int:
    """The dashboard over the run in ``directory`` until it is quit; the code to exit with.

    ``ends_run``: the caller ends the run then, and the dashboard says so.
    """
    role: Role = "viewer" if readonly else "operator"
    return _run(lambda: reach.connect(directory, role), title, readonly, ends_run)


def show_remote(endpoint: str, key_file: Path, *, title: str, readonly: bool) -> int:
    """The dashboard over a hub known by its endpoint and a key file."""
    return _run(lambda: reach.connect_remote(endpoint, key_file), title, readonly)


def _run(
    connect: Callable[[], Connection], title: str, readonly: bool, ends_run: bool = False
) -> int:
    from rankscope.tui.dashboard.app import run_dashboard

    def feed(on_update: Callable[[Snapshot], None]) -> Poller:
        return Poller(connect, INTERVAL_S, on_update)

    return run_dashboard(feed, title=title, readonly=readonly, ends_run=ends_run)
