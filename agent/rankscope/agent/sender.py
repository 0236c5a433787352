"""The one thread of the agent: finds the hub, and tells it what the training thread did."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from rankscope.agent import forks, frames, identity, room, switch
from rankscope.agent.clock.phases import Phases, Snapshot
from rankscope.agent.connection import Connection
from rankscope.agent.digest import Digest
from rankscope.agent.hublink import HubAddress, HubFinder, address_in_environ
from rankscope.agent.identity import Identity
from rankscope.agent.nodeleader import NodeLeader
from rankscope.agent.observer import Observer
from rankscope.agent.outbox import Outbox
from rankscope.agent.pings import Pings
from rankscope.protocol import codec, limits
from rankscope.protocol.messages import (
    Beat,
    CollectiveStatus,
    FromRank,
    Goodbye,
    Group,
    Groups,
    Hello,
    Memory,
    Message,
    Ping,
    Pong,
    ProbeFault,
    Refused,
    WhoAreYou,
)

log = logging.getLogger("rankscope")

TICK_S = 0.1
MEMORY_EVERY_S = 0.5
PONG_WAIT_S = 0.02
BEATS_AT_ONCE = 8
"""A backlog leaves in at most this many beats a tick."""

FLUSH_S = 0.2
"""The longest that ending or a flush keeps the training thread."""

LAST_TRY_S = 0.005
"""Between two tries to get the last words out."""

MAX_PAUSE_S = 5.0
"""After faults in a row the thread looks this seldom; it never gives up."""

ROOM_WAIT_S = (1.0, 60.0)
"""Where there is no room for a socket, it is looked for this often: at first, and in the end."""

TOLD_FAULTS = 4
"""So many different faults of this thread are told of."""


def tick_s(world_size: int) -> float:
    """Between two looks at the outbox: stretched on a large world, so that the hub keeps up."""
    return min(limits.BEAT_INTERVAL_S, max(TICK_S, world_size / 16384))


class Sender(threading.Thread):
    """Daemon thread; all sockets are its own. ``sequence`` hands out message numbers from 1."""

    def __init__(
        self, observer: Observer, name: str, start_step: int, sequence: "Sequence"
    ) -> None:
        super().__init__(name="rankscope", daemon=True)
        self.observer = observer
        self.run_name = name
        self.start_step = start_step
        self.sequence = sequence
        self.outbox = Outbox()
        self.phases = Phases(time.monotonic(), start_step)
        self.digest = Digest(self.phases, self.outbox)
        self.identity: Identity | None = None
        self.paused = False
        self._wake = threading.Event()
        self._flushed = threading.Event()
        self._flush_until_s: float | None = None
        self._ending = False
        self._finder: HubFinder | None = None
        self._address: HubAddress | None = None
        self._leader: NodeLeader | None = None
        self._connection: Connection | None = None
        self._tried_early = False
        self._refused = False
        self._hello_due = True
        self._boundary = False
        self._groups: tuple[Group, ...] = ()
        self._groups_due = False
        self._statuses: tuple[CollectiveStatus, ...] = ()
        self._memory: Memory | None = None
        self._memory_s = -1e9
        self._beat_s = -1e9
        self._beat_of: Any = None
        self._pings = Pings()
        self._faults = 0  # in a row
        self._told: set[str] = set()
        self._room_s = -1e9  # when room for a socket is looked for next
        self._room_wait_s = ROOM_WAIT_S[0]

    # called by the training thread

    def wake(self) -> None:
        self._wake.set()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until the hub has confirmed all that was put in, for at most ``timeout_s``."""
        if not self.is_alive() or self._connection is None:
            return False
        self._flushed.clear()
        self._flush_until_s = time.monotonic() + timeout_s
        self._wake.set()
        return self._flushed.wait(timeout_s)

    def end(self, timeout_s: float = FLUSH_S) -> None:
        """Send what is left, close the socket and end the thread, within ``timeout_s``."""
        self._ending = True
        self._flush_until_s = time.monotonic() + timeout_s
        self._wake.set()
        if self.ident is not None:  # else it was never started
            self.join(timeout_s)

    def abandon(self) -> None:
        """In a forked child, where the thread and its sockets do not exist."""
        if self._connection is not None:
            forks.keep(self._connection)
        if self._leader is not None:
            self._leader.close()

    # the thread

    def run(self) -> None:
        try:
            while not self._ending:
                self._wake.wait(self._wait_s())
                self._wake.clear()
                if self._guarded(self._tick):
                    self._faults = 0
                if self._flush_until_s is not None and not self._ending:
                    self._guarded(self._confirm)
            if self._ending:
                self._guarded(self._last_words)
        finally:
            self._flushed.set()
            self._guarded(self._close)

    def _wait_s(self) -> float:
        if self._faults:
            return min(MAX_PAUSE_S, TICK_S * 2.0 ** min(self._faults, 10))
        if self.paused:
            return limits.BEAT_INTERVAL_S
        return TICK_S if self.identity is None else tick_s(self.identity.world_size)

    def _guarded(self, action: Callable[[], None]) -> bool:
        """Whether ``action`` went well. A fault of this thread is told like that of a probe."""
        try:
            action()
        except Exception as error:
            self._faults += 1
            log.debug("rankscope: %s", error, exc_info=True)
            text = switch.one_line(error)
            if text not in self._told and len(self._told) < TOLD_FAULTS:
                self._told.add(text)
                step = self.phases.snapshot.step
                self.outbox.put_urgent(ProbeFault, probe="sender", error=text, step=step)
            return False
        return True

    def _tick(self) -> None:
        now = time.monotonic()
        self._read_notes()
        if self.paused or self._refused:
            return
        if not self._connected(now):
            return
        self._receive()
        if not self._send_hello(now):
            return
        if not self._send_urgent(now):
            return
        self._look()
        if self._groups_due and not self._send(Groups, now, groups=self._groups):
            return
        self._groups_due = False
        self._send_beats(now)
        self._ping(now)

    def _read_notes(self) -> None:
        """Work out what the training thread has noted down meanwhile."""
        noted = self.observer.noted
        taken = [noted.popleft() for _ in range(len(noted))]
        self.digest.feed(taken)

    def _connected(self, now: float) -> bool:
        if self.identity is None:
            self.identity = identity.decide(
                identity.from_torch(), identity.from_environ(), trained=self.digest.completed > 0
            )
            if self.identity is None:
                self._connect_early(now)
                return False
        if self._finder is None:
            self._finder = HubFinder(self.identity, self.run_name)
        self._address = self._finder.poll(now)
        self._finder.reap()
        if self._address is None:
            return False
        if self._connection is None:
            self._connect(self._address, now)
        if self._connection is None:
            return False
        if self._leader is None:
            self._leader = NodeLeader(self._address, self.identity)
        self._leader.tick(now)
        return True

    def _connect(self, address: HubAddress, now: float) -> None:
        """Open the socket, unless there is no room for it: then look again after a while."""
        if now < self._room_s:
            return
        lacks = room.lacking()
        if lacks is None:
            self._connection = Connection(address)
            return
        if self._room_wait_s == ROOM_WAIT_S[0]:
            log.warning("rankscope: training goes on unwatched for now: %s", lacks)
        self._room_s = now + self._room_wait_s
        self._room_wait_s = min(ROOM_WAIT_S[1], self._room_wait_s * 2)

    def _connect_early(self, now: float) -> None:
        """Shake hands with a hub that the environment names while the rank is still open."""
        if self._connection is None and not self._tried_early:
            self._tried_early = True
            address = address_in_environ()
            if address is not None:
                self._connect(address, now)

    # sending

    def _send(self, kind: type[FromRank], now: float, **fields: Any) -> bool:
        assert self.identity is not None
        assert self._connection is not None
        message = kind(self.identity.attempt, self.identity.rank, self.sequence.next, now, **fields)
        frame = frames.frame(message)
        if frame is None:  # dropped: what cannot be sent must not hold up the rest
            self.outbox.lost(len(fields.get("steps", ())))
            return True
        if not self._connection.send(frame):
            self._hello_due = True  # there is no hub: the next one must be told who we are
            return False
        self.sequence.used()
        return True

    def _send_hello(self, now: float) -> bool:
        observer = self.observer
        if observer.facts_changed or self.digest.boundary != self._boundary:
            observer.facts_changed = False
            self._boundary = self.digest.boundary
            self._hello_due = True
        if not self._hello_due:
            return True
        assert self.identity is not None
        assert self._address is not None
        self._hello_due = not self._send(
            Hello,
            now,
            run=self._address.run,
            world_size=self.identity.world_size,
            local_rank=self.identity.local_rank,
            host=self._finder.host if self._finder else "",
            pid=os.getpid(),
            name=self.run_name[: limits.MAX_NAME_CHARS],
            trainer=observer.facts.trainer,
            device=str(observer.device or "cpu"),
            start_step=self.start_step,
            boundary=self._boundary,
            facts=observer.ask(observer.facts, observer.facts.read) or {},
        )
        self._statuses = ()  # a hub that is new knows none of these
        self._groups_due = bool(self._groups)
        self._beat_of = None
        return not self._hello_due

    def _send_urgent(self, now: float) -> bool:
        outbox = self.outbox
        while True:
            waiting = outbox.next_urgent()
            if waiting is None:
                return True
            kind, fields = waiting
            # The steps before it go first, so that the hub knows how far this rank came.
            if kind is Goodbye:
                self._send_beats(now, self.phases.before_end)
            if not self._send(kind, now, **fields):
                return False
            outbox.urgent_sent()

    def _look(self) -> None:
        """Ask the probes that are read from this thread."""
        observer = self.observer
        groups = observer.ask(observer.collectives, observer.collectives.read_groups)
        # That all groups are gone says only that the run is ending: the last ones stay known.
        if groups and groups != self._groups:
            self._groups = groups
            self._groups_due = True

    def _send_beats(self, now: float, shown: Snapshot | None = None) -> None:
        """The steps that wait, and what the thread is doing (or did, as ``shown``)."""
        observer = self.observer
        outbox = self.outbox
        for _ in range(BEATS_AT_ONCE):
            snapshot = shown or self.phases.snapshot
            steps, late = outbox.steps(), outbox.late()
            statuses = observer.ask(observer.collectives, observer.collectives.read_statuses) or ()
            news = (snapshot, statuses)
            if (
                not steps
                and not late
                and news == self._beat_of
                and now - self._beat_s < limits.BEAT_INTERVAL_S - TICK_S / 2
            ):
                return
            if now - self._memory_s >= MEMORY_EVERY_S:
                self._memory = observer.ask(observer.memory, observer.memory.read)
                self._memory_s = now
            best = self._pings.best()
            sent = self._send(
                Beat,
                now,
                step=snapshot.step,
                microbatch=snapshot.microbatch,
                phase=snapshot.phase,
                phase_t_s=snapshot.since_s,
                activity=snapshot.activity,
                steps=steps,
                late=late,
                memory=self._memory,
                collectives=statuses if statuses != self._statuses else (),
                dropped=outbox.dropped,
                overhead_s_per_step=self.digest.overhead_s(),
                hub_offset_s=best.offset_s if best else None,
                hub_offset_error_s=best.error_s if best else None,
            )
            if not sent:
                return
            outbox.sent(len(steps), len(late))
            self._statuses, self._beat_of, self._beat_s = statuses, news, now
            if len(steps) < limits.MAX_STEPS_PER_BEAT:
                return

    # what the hub says

    def _receive(self, wait_s: float = 0.0) -> None:
        assert self._connection is not None
        for message in self._connection.receive(wait_s):
            self._heard(message)

    def _heard(self, message: Message) -> None:
        if isinstance(message, Pong):
            self._pings.heard(message, time.monotonic())
        elif isinstance(message, WhoAreYou):
            self._hello_due = True
            self.outbox.send_again()
        elif isinstance(message, Refused):
            self._refused = True
            log.warning("rankscope: the hub refuses this rank: %s", message.text)

    def _ping(self, now: float) -> None:
        if self._pings.due(now) and self._send_ping():
            self._receive(PONG_WAIT_S)  # read at once: waiting for the next tick would blur it

    def _send_ping(self) -> bool:
        assert self._connection is not None
        t_s = time.monotonic()
        if not self._connection.send(codec.encode(Ping(t_s))):
            return False
        self._pings.sent(t_s)
        return True

    # ending

    def _confirm(self) -> None:
        """Have the hub confirm all that was sent: its pong to a ping sent last says so."""
        until_s, self._flush_until_s = self._flush_until_s, None
        if (
            until_s is not None
            and self._connection is not None
            and not self._refused
            and self._send_ping()
        ):
            while self._pings.unanswered and (left_s := until_s - time.monotonic()) > 0:
                self._receive(left_s)
        self._flushed.set()

    def _last_words(self) -> None:
        """All that is left, to a hub that may be shaking hands yet."""
        until_s = self._flush_until_s or 0.0
        self._tick()
        while self._unsent() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(LAST_TRY_S, left_s))
            self._tick()
        self._confirm()

    def _unsent(self) -> bool:
        if self._connection is None or self._refused:
            return False
        return self.outbox.next_urgent() is not None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._leader is not None:
            self._leader.close()


class Sequence:
    """Message numbers from 1, used up only by messages that left. One a process, for its life."""

    def __init__(self) -> None:
        self.next = 1

    def used(self) -> None:
        self.next += 1
