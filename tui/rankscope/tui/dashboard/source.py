"""Where a dashboard gets its pictures from, and whom it may command. It knows no Textual."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope.tui.feed.commander import Connection
from rankscope.tui.feed.poller import Poller, Snapshot
from rankscope.tui.runs import ListedRun

PollerFactory = Callable[[Callable[[Snapshot], None]], Poller]
"""Makes the feed, given what to call with each new snapshot."""

FEED_ENDS_WITHIN_S = 0.5
"""Who quits does not wait for a hub that does not answer; the feed's thread is a daemon."""


@dataclass(frozen=True)
class Source:
    """One run to look at."""

    feed: PollerFactory
    title: str
    """What it is called until its own name is known."""
    readonly: bool = True
    operator: Callable[[], Connection] | None = None
    """Opens a connection with the operator's key; None where there is none."""
    why_not: str = "this dashboard only looks: start it without --readonly"
    """Why commands cannot be given, where they cannot."""


@dataclass(frozen=True)
class Choice:
    """The runs that can be gone over to."""

    look: Callable[[], Sequence[ListedRun]]
    open: Callable[[str], Source]
    """Of a run's directory. Raises ``UserError`` when it cannot be shown."""
