"""What is held of one hub: asked for anew as far as it has changed, put together as a snapshot."""

import time
from dataclasses import dataclass
from typing import Literal, Protocol

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Incidents, Overview, RankDetail, Shape, Status
from rankscope.tui.feed.client import Reply
from rankscope.tui.feed.link import LinkError
from rankscope.tui.feed.merge import ENDED_STATES, Held, merge, overview_at, status_at
from rankscope.tui.feed.playhead import Past
from rankscope.tui.words.nohub import older

NODES_AT_MOST = 128
"""More machines than this are asked for in short: no screen has a line for each."""

Args = dict[str, int | str]


class Connection(Protocol):
    """What is needed of a :class:`~rankscope.tui.feed.client.HubClient`."""

    replay: bool
    run_words: str

    def ask(
        self,
        view: str,
        *,
        since: int = 0,
        args: Args | None = None,
        timeout_s: float | None = None,
    ) -> Reply: ...

    def superseded(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Snapshot:
    """Everything a screen shows, as of one moment. Never changes: take it and draw."""

    status: Status | None
    """Whole (all ranks), all ages as of ``hub_s``; None until the first answer."""
    overview: Overview | None
    hub_s: float | None
    """The hub's clock at the newest answer."""
    age_s: float
    """Time since that answer; 0 while the link is up."""
    link: Literal["connecting", "up", "away"]
    error: str
    """Why the hub is away, in one line; empty while it is not."""
    taken_t_s: float
    """``time.monotonic()`` at the newest answer; add the time since to an age of a live run."""
    replay: bool = False
    """The answers come from a recording: its run is over, ages stand still."""
    rank: RankDetail | None = None
    """The rank asked for with :meth:`Poller.request_rank`."""
    incidents: Incidents | None = None
    """The incident log, while asked for with :meth:`Poller.request_incidents`."""
    view: Shape | None = None
    """The one further view asked for with :meth:`Poller.request_view`; another one for a moment
    after that was changed: look at its type."""
    view_hub_s: float | None = None
    """The hub's clock when ``view`` came: its ages are as of then."""
    past: Past | None = None
    """Not None: this is no live picture but of that moment of the recording."""
    silent: bool = False
    """While the hub is away: it takes connections and does not answer, so nobody restarts it."""
    run_words: str = ""
    """What a command names the run with, from another terminal."""
    behind_s: float = 0.0
    """How old what the recording knows last was at ``taken_t_s``; 0 for a live hub's answer and
    where the run has ended."""


@dataclass(frozen=True)
class Wanted:
    """A view a screen needs beside status and overview, and of which rank if of one."""

    view: str
    rank: int | None = None


class Follower:
    """For one thread. ``reset`` before another hub process is asked: its versions are its own."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._held: Held | None = None
        self._overview: tuple[Overview, float] | None = None
        self._incidents: Incidents | None = None
        self._view: tuple[Wanted, Shape, int, float] | None = None
        self._status_version = self._overview_version = self._incidents_version = 0

    def reset(self) -> None:
        """All in full from now on; what is held is shown until then."""
        self._status_version = self._overview_version = self._incidents_version = 0
        self._view = None

    def ask(
        self,
        connection: Connection,
        *,
        rank: int | None,
        incidents: bool,
        view: Wanted | None,
        args: Args | None = None,
    ) -> Snapshot:
        """The newest of everything that is wanted. ``args`` go with every request."""
        more = args or {}
        status = connection.ask(
            "status",
            since=self._status_version,
            args={**more, "heard": 1},
            timeout_s=self._timeout_s,
        )
        hub_s = status.hub_s
        if isinstance(status.body, Status):
            self._held = merge(self._held, status.body, hub_s)
        self._status_version = status.version
        overview = connection.ask(
            "overview",
            since=self._overview_version,
            args={**more, "nodes": NODES_AT_MOST},
            timeout_s=self._timeout_s,
        )
        if isinstance(overview.body, Overview):
            self._overview = (overview.body, overview.hub_s)
        self._overview_version = overview.version
        hub_s = max(hub_s, overview.hub_s)
        found = self._ask_view(connection, view, more)
        whole = None if self._held is None else status_at(self._held, hub_s)
        behind_s = 0.0
        if connection.replay and whole is not None and whole.state not in ENDED_STATES:
            # The recording of a run that had not ended: what it knows last grows older outside.
            behind_s = max(0.0, time.time() - hub_s)
            whole = older(whole, behind_s)
        return Snapshot(
            status=whole,
            overview=None if self._overview is None else overview_at(*self._overview, hub_s),
            hub_s=hub_s,
            age_s=0.0,
            link="up",
            error="",
            taken_t_s=time.monotonic(),
            replay=connection.replay,
            run_words=connection.run_words,
            rank=self._ask_rank(connection, rank, more),
            incidents=self._ask_incidents(connection, more) if incidents else None,
            view=None if found is None else found[0],
            view_hub_s=None if found is None else found[1],
            behind_s=behind_s,
        )

    def _ask_rank(
        self, connection: Connection, wanted: int | None, more: Args
    ) -> RankDetail | None:
        if wanted is None:
            return None
        args: Args = {**more, "rank": wanted}
        try:
            reply = connection.ask("rank", args=args, timeout_s=self._timeout_s)
        except LinkError:
            raise
        except UserError:  # no such rank yet
            return None
        return reply.body if isinstance(reply.body, RankDetail) else None

    def _ask_incidents(self, connection: Connection, more: Args) -> Incidents | None:
        since = 0 if self._incidents is None else self._incidents_version
        reply = connection.ask("incidents", since=since, args=more, timeout_s=self._timeout_s)
        if isinstance(reply.body, Incidents):
            self._incidents = reply.body
        self._incidents_version = reply.version
        return self._incidents

    def _ask_view(
        self, connection: Connection, wanted: Wanted | None, more: Args
    ) -> tuple[Shape, float] | None:
        """The view and the hub's clock when it came."""
        if wanted is None:
            return None
        known = self._view if self._view is not None and self._view[0] == wanted else None
        args: Args = more if wanted.rank is None else {**more, "rank": wanted.rank}
        since = 0 if known is None else known[2]
        try:
            reply = connection.ask(wanted.view, since=since, args=args, timeout_s=self._timeout_s)
        except LinkError:
            raise
        except UserError:  # no such rank yet, or a hub of another version
            return None
        if reply.body is not None:
            self._view = known = (wanted, reply.body, reply.version, reply.hub_s)
        return None if known is None else (known[1], known[3])
