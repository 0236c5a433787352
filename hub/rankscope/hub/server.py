"""The poll loop: drains the sockets in batches, diagnoses a few times a second, ends in order."""

import os
import signal
import time
from typing import Protocol

from rankscope.hub.core import Core
from rankscope.hub.lifetimes import Lifetimes
from rankscope.hub.rhythm import LINGER_S, Rhythm, lingers
from rankscope.hub.sockets import Sockets

MAX_ROUND_S = 0.05
"""Whatever comes in, timers are served this often."""


class TellsTime(Protocol):
    def now_s(self) -> float: ...


class Receives(Protocol):
    """What the sockets need of a hub: a :class:`Core`, or what stands before several."""

    outbox: list[tuple[bytes, bytes]]

    def junk(self, peer: bytes, role: str, what: str) -> None: ...

    def receive(self, peer: bytes, role: str, frame: bytes, now_s: float) -> None: ...

    def flush(self) -> None: ...


class Stop:
    """Set by SIGTERM and SIGINT: the loop ends in order."""

    def __init__(self) -> None:
        self.reason = ""
        signal.signal(signal.SIGTERM, self._asked)
        signal.signal(signal.SIGINT, self._asked)

    def _asked(self, number: int, _frame: object) -> None:
        self.reason = f"asked to end by {signal.Signals(number).name}"


def serve_live(
    core: Core, sockets: Sockets, clock: TellsTime, lifetimes: Lifetimes, stop: Stop
) -> str:
    """Serve until there is a reason to end; the reason in words."""
    started_s = clock.now_s()
    rhythm = Rhythm(started_s)
    core.tick(started_s)
    while True:
        asleep_s = clock.now_s()
        ready = sockets.poll(max(0.0, rhythm.due_s(core, asleep_s) - asleep_s))
        now_s = clock.now_s()
        if ready and lingers(now_s - asleep_s, now_s, core.client_s):
            time.sleep(LINGER_S)
            now_s = clock.now_s()
        handle(core, sockets, now_s)
        if now_s >= rhythm.due_s(core, now_s, awake=True):
            core.tick(now_s)
            send(core, sockets)
            rhythm.ticked(now_s)
            if stop.reason:
                return stop.reason
            reason = lifetimes.reason_to_end(
                now_s,
                started_s=started_s,
                run_end_s=core.over_s(),
                ranks_ended_s=core.ranks_ended_s(),
                heard_s=core.heard_s(),
                client_s=core.client_s,
            )
            if reason:
                return reason
        core.flush()
        if core.end_asked:
            return "told to end by end-hub"


def serve_replay(
    core: Receives, sockets: Sockets, clock: TellsTime, stdin: int, stop: Stop
) -> None:
    """Serve what does not change by itself until ``stdin`` closes."""
    sockets.watch(stdin)
    while not stop.reason:
        ready = sockets.poll(1.0)
        handle(core, sockets, clock.now_s())
        if stdin in ready and not os.read(stdin, 4096):
            return


def handle(core: Receives, sockets: Sockets, now_s: float) -> None:
    """Take in what has come, for a while, and send what that calls for."""
    deadline = time.monotonic() + MAX_ROUND_S
    for peer, role, frame in sockets.receive():
        if frame is None:
            core.junk(peer, role, "a multipart message")
        else:
            core.receive(peer, role, frame, now_s)
        send(core, sockets)
        if time.monotonic() > deadline:
            return  # the rest waits in libzmq until the timers were served


def send(core: Receives, sockets: Sockets) -> None:
    """Send what the hub has to say."""
    if core.outbox:
        core.flush()  # who gets an answer may rely on it that what it said is kept
        for receiver, frame in core.outbox:
            sockets.send(receiver, frame)
        core.outbox.clear()
