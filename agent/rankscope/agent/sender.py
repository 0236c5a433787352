"""The one thread of the agent: finds the hub, and tells it what the training thread did."""

import logging
import threading
import time
from collections.abc import Callable

from rankscope.agent import bell, forks, identity, looks, room, switch
from rankscope.agent.connection import Connection
from rankscope.agent.farewell import Letter
from rankscope.agent.hublink import HubAddress, HubFinder, address_in_environ
from rankscope.agent.nodeleader import NodeLeader
from rankscope.agent.observer import Observer
from rankscope.agent.talk import Sequence, Talk
from rankscope.protocol import limits
from rankscope.protocol.messages import ProbeFault

log = logging.getLogger("rankscope")

FLUSH_S = 0.2
"""The longest that ending or a flush keeps the training thread."""

LEAST_WAIT_S = 0.01
"""Between two looks, whatever there is to say."""

LAST_TRY_S = 0.005
"""Between two tries to get the last words out."""

MAX_PAUSE_S = 5.0
"""After faults in a row the thread looks this seldom; it never gives up."""

ROOM_WAIT_S = (1.0, 60.0)
"""Where there is no room for a socket, it is looked for this often: at first, and in the end."""

TOLD_FAULTS = 4
"""So many different faults of this thread are told of."""


class Sender(threading.Thread):
    """Daemon thread; all sockets are its own. ``sequence`` hands out message numbers from 1."""

    def __init__(self, observer: Observer, name: str, start_step: int, sequence: Sequence) -> None:
        super().__init__(name="rankscope", daemon=True)
        self.run_name = name
        self.talk = Talk(observer, name, start_step, sequence)
        self.paused = False
        self._pausing = False
        self._wake = threading.Event()
        self._bell: bell.Bell | None = None
        self._listens = False  # the last look has heard all that the hub had said
        self._flushed = threading.Event()
        self._flush_until_s: float | None = None
        self._ending = False
        self._finder: HubFinder | None = None
        self._address: HubAddress | None = None
        self._leader: NodeLeader | None = None
        self._connection: Connection | None = None
        self._tried_early = False
        self._looked_s = -1e9
        self._glance_s = looks.GLANCE_S  # until the next glance, or look
        self._faults = 0  # in a row
        self._told: set[str] = set()
        self._room_s = -1e9  # when room for a socket is looked for next
        self._room_wait_s = ROOM_WAIT_S[0]

    # called by the training thread

    def wake(self) -> None:
        self._wake.set()
        rung = self._bell
        if rung is not None:
            rung.ring()

    def pause(self) -> None:
        """Say that nothing more will be said for now, and then rest."""
        self._pausing = True
        self.wake()

    def resume(self) -> None:
        self._pausing = self.paused = False

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until the hub has confirmed all that was put in, for at most ``timeout_s``."""
        if not self.is_alive() or self._connection is None:
            return False
        self._flushed.clear()
        self._flush_until_s = time.monotonic() + timeout_s
        self.wake()
        return self._flushed.wait(timeout_s)

    def end(self, timeout_s: float = FLUSH_S) -> None:
        """Send what is left, close the socket and end the thread, within ``timeout_s``."""
        self._ending = True
        self._flush_until_s = time.monotonic() + timeout_s
        self.wake()
        if self.ident is not None:  # else it was never started
            self.join(timeout_s)

    def abandon(self) -> None:
        """In a forked child, where the thread and its sockets do not exist."""
        if self._connection is not None:
            forks.keep(self._connection)
        if self._leader is not None:
            self._leader.close()
        self._bell = None

    # the thread

    def run(self) -> None:
        try:
            while not self._ending:
                called = self._rest(self._wait_s())
                while not called and self._may_pass():
                    called = self._rest(self._glance_s)
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

    def _rest(self, wait_s: float) -> bool:
        """Until the time is over, or training has something urgent, or the hub: that is True."""
        if not self._listens or self._connection is None or self._bell is None:
            return self._wake.wait(wait_s)
        return self._wake.is_set() or self._connection.wait(wait_s, self._bell)

    def _wait_s(self) -> float:
        if self._faults:
            return min(MAX_PAUSE_S, looks.STANDING_S * 2.0 ** min(self._faults, 10))
        if self.paused:
            return limits.BEAT_INTERVAL_S
        known = self.talk.identity
        if known is None:
            return looks.STANDING_S
        now = time.monotonic()
        talk = self.talk
        calm, rises = talk.calm(now), talk.memory_rises(now)
        talk.every_s = looks.every_s(known.world_size, going=calm, rises=rises)
        wait_s = looks.wait_s(now, talk.every_s, talk.digest.step_s)
        return max(LEAST_WAIT_S, min(wait_s, talk.silent_s(now)))

    def _may_pass(self) -> bool:
        """Whether a glance is enough: all is calm, and the next look will say so.

        Then the next rest is as long as this one was to be: nothing has changed.
        """
        if not self._listens or self._faults or self._ending:
            return False
        now, talk = time.monotonic(), self.talk
        if not talk.calm(now) or looks.is_due(now, talk.every_s, self._looked_s):
            return False
        self._glance_s = max(LEAST_WAIT_S, looks.wait_s(now, talk.every_s, talk.digest.step_s))
        return True

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
                step = self.talk.phases.snapshot.step
                self.talk.outbox.put_urgent(ProbeFault, probe="sender", error=text, step=step)
            return False
        return True

    def _tick(self) -> None:
        now = self._looked_s = time.monotonic()
        self._listens = False
        self.talk.read_notes()
        if self.paused or self.talk.refused:
            return
        if self._connected(now):
            assert self._connection is not None
            self.talk.turn(self._connection, now)
            self._listens = not self.talk.refused
        if self._pausing:  # and said so, where anybody hears
            self._pausing, self.paused = False, True

    def _connected(self, now: float) -> bool:
        if self.talk.identity is None:
            self.talk.identity = identity.decide(
                identity.from_torch(),
                identity.from_environ(),
                trained=self.talk.digest.completed > 0,
            )
            if self.talk.identity is None:
                self._connect_early(now)
                return False
        if self._finder is None:
            self._finder = HubFinder(self.talk.identity, self.run_name)
            self.talk.host = self._finder.host
        self._address = self._finder.poll(now)
        self._finder.reap()
        if self._address is None:
            return False
        self.talk.run = self._address.run
        if self._connection is None:
            self._connect(self._address, now)
        if self._connection is None:
            return False
        if self._leader is None:
            box = self.talk.issued.box
            calls = -1 if box is None else box.descriptor
            self._leader = NodeLeader(self._address, self.talk.identity, calls)
        self._leader.tick(now)
        return True

    def _connect(self, address: HubAddress, now: float) -> None:
        """Open the socket, unless there is no room for it: then look again after a while."""
        if now < self._room_s:
            return
        lacks = room.lacking()
        if lacks is None:
            self._connection = Connection(address)
            self._bell = self._bell or bell.taken()
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

    # ending

    def _confirm(self) -> None:
        until_s, self._flush_until_s = self._flush_until_s, None
        if until_s is not None and self._connection is not None:
            self.talk.confirm(self._connection, until_s)
        self._flushed.set()

    def _last_words(self) -> None:
        """All that is left, to a hub that may be shaking hands yet."""
        until_s = self._flush_until_s or 0.0
        self._tick()
        starting = self._finder.starting if self._finder is not None else None
        if starting is not None and not self.paused:
            letter = Letter()
            self.talk.run = starting.run
            self.talk.turn(letter, time.monotonic())
            letter.leave(starting)
            return
        while self._unsent() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(LAST_TRY_S, left_s))
            self._tick()
        self._confirm()

    def _unsent(self) -> bool:
        if self._connection is None or self.talk.refused:
            return False
        # Saying it may have brought up a fault, noted down meanwhile.
        return self.talk.outbox.next_urgent() is not None or bool(self.talk.observer.noted)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._leader is not None:
            self._leader.close()
        if self._bell is not None:
            rung, self._bell = self._bell, None
            bell.given_back(rung)
