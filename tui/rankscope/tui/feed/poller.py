"""A thread that follows a hub and hands over frozen snapshots.

It asks at its own pace and only when the last answer has come; a hand-over that takes long makes
it ask less often. Only the newest snapshot counts, nothing queues.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Incidents, Overview, RankDetail, Shape, Status
from rankscope.tui.feed.client import Reply
from rankscope.tui.feed.link import LinkError
from rankscope.tui.feed.merge import Held, merge, overview_at, status_at

ASK_TIMEOUT_S = 2.0
"""A hub that is silent for so long is said to be away; asking goes on."""
NODES_AT_MOST = 128
"""More machines than this are asked for in short: no screen has a line for each."""
BUSY_SHARE = 0.5
"""At most this share of the time goes into handing over; a slow terminal gets fewer snapshots."""


class Connection(Protocol):
    """What the poller needs of a :class:`~rankscope.tui.feed.client.HubClient`."""

    replay: bool

    def ask(
        self,
        view: str,
        *,
        since: int = 0,
        args: dict[str, int | str] | None = None,
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


@dataclass(frozen=True)
class Wanted:
    """A view a screen needs beside status and overview, and of which rank if of one."""

    view: str
    rank: int | None = None


class Poller:
    """Follows the hub that ``connect`` leads to, until :meth:`stop`.

    ``on_update`` is called in the poller's thread with each new snapshot. It should return when
    the snapshot has been taken: until then nothing is asked. ``connect`` is called in that thread
    too, again whenever the hub was lost; it raises ``UserError`` when there is none.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        interval_s: float,
        on_update: Callable[[Snapshot], None],
    ) -> None:
        self._connect = connect
        self._interval_s = interval_s
        self._on_update = on_update
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-feed", daemon=True)
        self._wanted_rank: int | None = None
        self._want_incidents = False
        self._wanted_view: Wanted | None = None
        self._view: tuple[Wanted, Shape, int] | None = None
        self._connection: Connection | None = None
        self._held: Held | None = None
        self._overview: tuple[Overview, float] | None = None
        self._incidents: Incidents | None = None
        self._status_version = self._overview_version = self._incidents_version = 0
        self.latest = Snapshot(None, None, None, 0.0, "connecting", "", time.monotonic())

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the thread and close its connection; waits for at most ``timeout_s``."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def request_rank(self, rank: int | None) -> None:
        """Ask for this rank's details too, from now on; None for no rank."""
        self._wanted_rank = rank
        self._wake.set()

    def request_incidents(self, wanted: bool) -> None:
        """Ask for the incident log too, from now on."""
        self._want_incidents = wanted
        self._wake.set()

    def request_view(self, wanted: Wanted | None) -> None:
        """Ask for this view too, from now on; None for none."""
        if wanted != self._wanted_view:
            self._wanted_view = wanted
            self._wake.set()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began_s = time.monotonic()
                self._round()
                if self._stop.is_set():
                    return
                handing_s = time.monotonic()
                self._on_update(self.latest)
                busy_s = time.monotonic() - handing_s
                pause_s = max(
                    self._interval_s - (time.monotonic() - began_s),
                    busy_s * (1 - BUSY_SHARE) / BUSY_SHARE,
                )
                self._wake.wait(max(0.0, pause_s))
                self._wake.clear()
        finally:
            self._drop_connection()

    def _round(self) -> None:
        try:
            if self._connection is not None and self._connection.superseded():
                self._drop_connection()
            if self._connection is None:
                self._connection = self._connect()
                # It may be another hub process, whose versions mean other things: all in full.
                self._status_version = self._overview_version = self._incidents_version = 0
                self._view = None
            self.latest = self._ask(self._connection)
        except UserError as error:
            self._drop_connection()
            self.latest = self._away(str(error))
        except Exception as error:  # noqa: BLE001 - a dead thread would freeze the screen in silence
            self._drop_connection()
            self.latest = self._away(f"rankscope failed: {type(error).__name__}: {error}")

    def _ask(self, connection: Connection) -> Snapshot:
        status = connection.ask("status", since=self._status_version, timeout_s=ASK_TIMEOUT_S)
        hub_s = status.hub_s
        if isinstance(status.body, Status):
            self._held = merge(self._held, status.body, hub_s)
        self._status_version = status.version
        overview = connection.ask(
            "overview",
            since=self._overview_version,
            args={"nodes": NODES_AT_MOST},
            timeout_s=ASK_TIMEOUT_S,
        )
        if isinstance(overview.body, Overview):
            self._overview = (overview.body, overview.hub_s)
        self._overview_version = overview.version
        hub_s = max(hub_s, overview.hub_s)
        return Snapshot(
            status=None if self._held is None else status_at(self._held, hub_s),
            overview=None if self._overview is None else overview_at(*self._overview, hub_s),
            hub_s=hub_s,
            age_s=0.0,
            link="up",
            error="",
            taken_t_s=time.monotonic(),
            replay=connection.replay,
            rank=self._ask_rank(connection),
            incidents=self._ask_incidents(connection),
            view=self._ask_view(connection),
        )

    def _ask_rank(self, connection: Connection) -> RankDetail | None:
        wanted = self._wanted_rank
        if wanted is None:
            return None
        try:
            reply = connection.ask("rank", args={"rank": wanted}, timeout_s=ASK_TIMEOUT_S)
        except LinkError:
            raise
        except UserError:  # no such rank yet
            return None
        return reply.body if isinstance(reply.body, RankDetail) else None

    def _ask_incidents(self, connection: Connection) -> Incidents | None:
        if not self._want_incidents:
            return None
        since = 0 if self._incidents is None else self._incidents_version
        reply = connection.ask("incidents", since=since, timeout_s=ASK_TIMEOUT_S)
        if isinstance(reply.body, Incidents):
            self._incidents = reply.body
        self._incidents_version = reply.version
        return self._incidents

    def _ask_view(self, connection: Connection) -> Shape | None:
        wanted = self._wanted_view
        if wanted is None:
            return None
        known = self._view if self._view is not None and self._view[0] == wanted else None
        args: dict[str, int | str] = {} if wanted.rank is None else {"rank": wanted.rank}
        since = 0 if known is None else known[2]
        try:
            reply = connection.ask(wanted.view, since=since, args=args, timeout_s=ASK_TIMEOUT_S)
        except LinkError:
            raise
        except UserError:  # no such rank yet, or a hub of another version
            return None
        if reply.body is not None:
            self._view = known = (wanted, reply.body, reply.version)
        return None if known is None else known[1]

    def _away(self, error: str) -> Snapshot:
        last = self.latest
        age_s = 0.0 if last.hub_s is None else time.monotonic() - last.taken_t_s
        return Snapshot(
            status=last.status,
            overview=last.overview,
            hub_s=last.hub_s,
            age_s=age_s,
            link="away",
            error=error,
            taken_t_s=last.taken_t_s,
            replay=last.replay,
            rank=last.rank,
            incidents=last.incidents,
            view=last.view,
        )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
