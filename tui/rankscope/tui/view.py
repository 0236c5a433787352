"""Showing the dashboard for a run: the one place that ties feed, reach and dashboard together."""

import sys
from collections.abc import Callable
from pathlib import Path

from rankscope.protocol.keys import read_client_key
from rankscope.protocol.rundir import RunDirectory, runs_home
from rankscope.tui import reach
from rankscope.tui.dashboard.source import Choice, PollerFactory, Source
from rankscope.tui.dashboard.terminal import is_usable
from rankscope.tui.feed.client import HubClient
from rankscope.tui.feed.poller import Connection, Poller, Snapshot
from rankscope.tui.feed.timesource import TimeSource
from rankscope.tui.runs import listed

INTERVAL_S = 0.25
NOT_OPERATOR = "this key may only look; commands need the operator's (rankscope grant operator)"


def on_terminal() -> bool:
    """Whether a dashboard can be shown here; what is piped elsewhere is wanted as text."""
    return sys.stdout.isatty() and is_usable()


def show(
    directory: RunDirectory,
    *,
    title: str,
    readonly: bool,
    ends_run: bool = False,
    unlocked: bool = False,
    at_last: Callable[[int], int] = int,
) -> int:
    """The dashboard over the run in ``directory`` until it is quit; the code to exit with.

    ``ends_run``: the caller ends the run then, and the dashboard says so. ``unlocked``: commands
    need no unlocking first. ``at_last``: what is left to do where the terminal keeps it from
    ending, from the code to leave with to that to exit with; in a thread.
    """
    from rankscope.tui.dashboard.app import run_dashboard

    def open_(path: str) -> Source:
        other = RunDirectory(Path(path))
        reach.check(other)
        return of_directory(other, other.run, readonly)

    choice = Choice(lambda: listed(runs_home()), open_)
    source = of_directory(directory, title, readonly)
    return run_dashboard(
        source, choice=choice, unlocked=unlocked, ends_run=ends_run, at_last=at_last
    )


def show_remote(
    endpoint: str, key_file: Path, *, title: str, readonly: bool, unlocked: bool = False
) -> int:
    """The dashboard over a hub known by its endpoint and a key file."""
    from rankscope.tui.dashboard.app import run_dashboard

    def connect() -> HubClient:
        return reach.connect_remote(endpoint, key_file)

    may = not readonly and read_client_key(key_file).role == "operator"
    source = Source(
        feed(connect),
        title,
        readonly=readonly,
        operator=connect if may else None,
        why_not=Source.why_not if readonly else NOT_OPERATOR,
    )
    return run_dashboard(source, unlocked=unlocked)


def of_directory(directory: RunDirectory, title: str, readonly: bool) -> Source:
    """A run of this machine: looked at with the viewer's key, commanded with the operator's."""
    return Source(
        feed(lambda: reach.connect(directory, "viewer"), lambda: reach.connect_past(directory)),
        title,
        readonly=readonly,
        operator=None if readonly else lambda: reach.connect(directory, "operator"),
    )


def show_past(
    directory: RunDirectory, client: HubClient, *, begin: str | float, speed: float
) -> int:
    """The dashboard over the recording of the run in ``directory``, and nothing live.

    ``client`` serves it already, and is closed here; another is started only when it is lost.
    """
    from rankscope.tui.dashboard.app import run_dashboard

    unused = [client]

    def connect() -> HubClient:
        return unused.pop() if unused else reach.connect_past(directory)

    times = TimeSource(can_go_back=True, live=False, begin=begin, speed=speed)
    source = Source(
        feed(connect, connect, times),
        directory.run,
        why_not="a recording cannot be commanded: rankscope top shows the run itself",
    )
    try:
        return run_dashboard(source)
    finally:
        for one in unused:  # the feed never came to it
            one.close()


def feed(
    connect: Callable[[], Connection],
    connect_past: Callable[[], Connection] | None = None,
    times: TimeSource | None = None,
) -> PollerFactory:
    """What makes the poller of a hub, and of the recording beside it."""

    def make(on_update: Callable[[Snapshot], None]) -> Poller:
        return Poller(connect, INTERVAL_S, on_update, connect_past=connect_past, times=times)

    return make
