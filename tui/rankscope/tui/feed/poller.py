"""A thread that follows a hub and hands over frozen snapshots.

It asks at its own pace and only when the last answer has come; a hand-over that takes long makes
it ask less often. Only the newest snapshot counts, nothing queues. While the past is wanted
(:class:`~.timesource.TimeSource`) it asks a hub that serves the recording, and the live one waits.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Recording
from rankscope.tui.feed.follower import Connection, Follower, Snapshot, Wanted
from rankscope.tui.feed.link import LinkError
from rankscope.tui.feed.timesource import TimeSource

__all__ = ["Connection", "Poller", "Snapshot", "Wanted"]

ASK_TIMEOUT_S = 2.0
"""A hub that is silent for so long is said to be away; asking goes on."""
PAST_TIMEOUT_S = 20.0
"""Going far in the recording of a large run takes its hub seconds."""
DESCRIBED_EVERY_S = 2.0
"""How often the recording of a live run is asked how long it has become."""
LARGE_WORLD, LARGE_INTERVAL_S = 4096, 0.5
"""From so many ranks on a hub is asked no more often than the screen is drawn anew."""
BUSY_SHARE = 0.5
"""At most this share of the time goes into handing over; a slow terminal gets fewer snapshots."""


class Poller:
    """Follows the hub that ``connect`` leads to, until :meth:`stop`.

    ``on_update`` is called in the poller's thread with each new snapshot. It should return when
    the snapshot has been taken: until then nothing is asked. ``connect`` is called in that thread
    too, again whenever the hub was lost; it raises ``UserError`` when there is none.
    ``connect_past`` likewise leads to a hub that serves the recording.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        interval_s: float,
        on_update: Callable[[Snapshot], None],
        *,
        connect_past: Callable[[], Connection] | None = None,
        times: TimeSource | None = None,
    ) -> None:
        self._connect = connect
        self._connect_past = connect_past
        self._interval_s = interval_s
        self._on_update = on_update
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-feed", daemon=True)
        self._wanted_rank: int | None = None
        self._want_incidents = False
        self._wanted_view: Wanted | None = None
        self._connection: Connection | None = None
        self._live = Follower(ASK_TIMEOUT_S)
        self._past_connection: Connection | None = None
        self._past = Follower(PAST_TIMEOUT_S)
        self._recording: tuple[Recording, float] | None = None
        self.times = times or TimeSource(can_go_back=connect_past is not None)
        self.times.on_change = self._wake.set
        self.latest = Snapshot(
            *(None, None, None, 0.0, "connecting", "", time.monotonic()),
            replay=not self.times.is_live,
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the thread and close its connections; waits for at most ``timeout_s``."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def request_rank(self, rank: int | None) -> None:
        """Ask for this rank's details too, from now on; None for no rank."""
        if rank != self._wanted_rank:
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
                    self._pace_s() - (time.monotonic() - began_s),
                    busy_s * (1 - BUSY_SHARE) / BUSY_SHARE,
                )
                self._wake.wait(max(0.0, pause_s))
                self._wake.clear()
        finally:
            self._drop_connection()
            self._drop_past()

    def _pace_s(self) -> float:
        status = self.latest.status
        if status is not None and status.world_size >= LARGE_WORLD:
            return max(self._interval_s, LARGE_INTERVAL_S)
        return self._interval_s

    def _round(self) -> None:
        wants_past = self.times.wants_past()
        try:
            past = self._ask_past() if wants_past else None
            if past is not None:
                self.latest = past
                return
            self._drop_past()
            self.latest = self._ask_live()
        except LinkError as error:
            self._lost(wants_past, error.standing, silent=error.cause == "silent")
        except UserError as error:
            self._lost(wants_past, str(error))
        except Exception as error:  # noqa: BLE001 - a dead thread would freeze the screen in silence
            self._lost(wants_past, f"rankscope failed: {type(error).__name__}: {error}")

    def _ask_live(self) -> Snapshot:
        if self._connection is not None and self._connection.superseded():
            self._drop_connection()
        if self._connection is None:
            self._connection = self._connect()
            self._live.reset()  # it may be another hub process
        return self._live.ask(
            self._connection,
            rank=self._wanted_rank,
            incidents=self._want_incidents,
            view=self._wanted_view,
        )

    def _ask_past(self) -> Snapshot | None:
        """The moment that is wanted; None when live is, after all."""
        if self._past_connection is None:
            connect = self._connect if self._connect_past is None else self._connect_past
            self._past_connection = connect()
            self._past.reset()
        connection = self._past_connection
        recording = self._described(connection)
        past = self.times.where(recording)
        if past is None:
            return None
        snapshot = self._past.ask(
            connection,
            rank=self._wanted_rank,
            incidents=self._want_incidents,
            view=self._wanted_view,
            # Rounded up: what is asked for has happened by then.
            args={"at_ms": math.ceil(past.at_s * 1000)},
        )
        at_s = past.at_s if snapshot.hub_s is None else snapshot.hub_s
        return replace(snapshot, replay=False, past=replace(past, at_s=at_s))

    def _described(self, connection: Connection) -> Recording:
        """From when to when the recording goes; of a live run it becomes longer."""
        now_t_s = time.monotonic()
        known = self._recording
        if known is not None and not (known[0].growing and now_t_s - known[1] > DESCRIBED_EVERY_S):
            return known[0]
        reply = connection.ask("recording", timeout_s=PAST_TIMEOUT_S)
        if not isinstance(reply.body, Recording):
            raise UserError("there is no recording to go back to")
        self._recording = (reply.body, now_t_s)
        return reply.body

    def _lost(self, past: bool, error: str, silent: bool = False) -> None:
        if past:
            self._drop_past()
            if self.times.fail(error):
                return  # the next round is a live one
        else:
            self._drop_connection()
        self.latest = self._away(error, silent)

    def _away(self, error: str, silent: bool) -> Snapshot:
        last = self.latest
        age_s = 0.0 if last.hub_s is None else time.monotonic() - last.taken_t_s
        return replace(last, age_s=age_s, link="away", error=error, silent=silent)

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _drop_past(self) -> None:
        self._recording = None
        if self._past_connection is not None:
            self._past_connection.close()
            self._past_connection = None
