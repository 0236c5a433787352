"""What a rank says to its hub, and what it hears: turn by turn. Only pongs are waited for."""

import logging
import math
import os
import threading
import time
from contextlib import suppress
from typing import Any, Protocol

from rankscope.agent import events, frames, looks, switch
from rankscope.agent.clock.phases import Phases, Snapshot
from rankscope.agent.control.account import Account
from rankscope.agent.control.reports import Reports
from rankscope.agent.digest import Digest
from rankscope.agent.evidence.evidence import Evidence
from rankscope.agent.evidence.expecting import Expecting
from rankscope.agent.identity import Identity
from rankscope.agent.observer import Observer
from rankscope.agent.outbox import Outbox
from rankscope.agent.pings import Pings
from rankscope.agent.probes.issued import Issued
from rankscope.protocol import codec, limits
from rankscope.protocol.messages import (
    Beat,
    CollectiveStatus,
    Controlled,
    FromRank,
    Goodbye,
    Group,
    Groups,
    Hello,
    Inquire,
    Memory,
    Message,
    Order,
    Ping,
    Pong,
    ProbeFault,
    Raised,
    Refused,
    Saving,
    WhoAreYou,
)

log = logging.getLogger("rankscope")

MEMORY_EVERY_S = (0.12, 0.8)
"""Between two readings of what memory is taken: with each look, and with every second one while it
stays as it is and training goes on."""

RISEN_BYTES, RISEN_SHARE = 4 << 20, 1 / 256
"""By more than both (the second of what is taken) memory exceeds all that it was before where it is
said to rise: a quarter of what the hub calls growth, …"""

RISES_S = 2.0
"""… and for so long after."""

WATCHED_S = 2.0
"""Whoever is asked for checksums says for so long what is new as soon as if it stood: replicas that
part are told by its next check, and by how the forward behind that ends."""

GROUPS_EVERY_S = 1.0
PONG_WAIT_S = 0.02
EARLY_S = 0.05
"""A turn comes so much before its time, or after it."""

SAVES_AT_ONCE = 4
BEATS_AT_ONCE = 8
"""A backlog leaves in at most this many beats a turn."""


class Way(Protocol):
    """Where frames go, and where the hub's come from."""

    def takes(self) -> bool: ...

    def send(self, frame: bytes) -> bool: ...

    def receive(self, wait_s: float = 0.0) -> list[Message]: ...


class Talk:
    """Of one rank, over whatever way to the hub there is at the moment."""

    def __init__(
        self, observer: Observer, name: str, start_step: int, sequence: "Sequence"
    ) -> None:
        self.observer = observer
        self.run_name = name
        self.start_step = start_step
        self.sequence = sequence
        self.outbox = Outbox()
        self.phases = Phases(time.monotonic(), start_step)
        self.digest = Digest(self.phases, self.outbox)
        self.expecting = Expecting()
        issued = observer.probes[Issued.name]
        assert isinstance(issued, Issued)
        self.issued = issued
        self.saves: Reports | None = None
        """What there is to say of checkpoints, where there is a checkpointer."""
        self.account: Account | None = None
        """What there is to say of operators' requests."""
        self.evidence: Evidence | None = Evidence(
            self.expecting,
            training=lambda: observer.thread,
            hidden=_this_thread,
            sources=issued.sources,
            calls=issued.calls,
            world_size=lambda: 1 if self.identity is None else self.identity.world_size,
        )
        answers = self.evidence.answers
        answers.offer("checksums", self.digest.checks.newest)
        answers.offer("parameter_norms", lambda: observer.gradients.answer(self.digest.step_of))
        self.identity: Identity | None = None
        self.run = self.host = ""
        self.refused = False
        self.every_s = looks.STANDING_S
        """Between two turns, as things are."""
        self._way: Way | None = None
        self._hello_due = True
        self._boundary = False
        self._groups: tuple[Group, ...] = ()
        self._groups_due = False
        self._groups_s = -1e9
        self._statuses: tuple[CollectiveStatus, ...] = ()
        self._memory_s = self._rose_s = self._watched_s = -1e9
        self._noted_s = self.phases.snapshot.since_s
        self._most_bytes = 0
        self._beat_s = -1e9
        self._beat_of: Any = None
        self._expected = ""
        self._pings = Pings()

    def read_notes(self) -> None:
        """Work out what the training thread has noted down meanwhile."""
        noted = self.observer.noted
        taken = [noted.popleft() for _ in range(len(noted))]
        self.digest.feed(taken)
        if taken:
            self._noted_s = taken[-1][1]
        for event in taken:
            if event[0] == events.BEGIN_FORWARD:
                self.expecting.forward(event[2])

    def goes_on(self, now: float) -> bool:
        """Whether the training thread does one thing after the other, rather than stand in one.

        Not every note is of another phase: those of an evaluation are not."""
        noted = self.observer.noted
        noted_s = noted[-1][1] if noted else max(self._noted_s, self.phases.snapshot.since_s)
        return not looks.stands(now, noted_s, self.digest.step_s)

    def calm(self, now: float) -> bool:
        """Whether what is new may wait a little: training goes on, and the hub expects nothing."""
        return self.goes_on(now) and now - self._watched_s >= WATCHED_S

    def silent_s(self, now: float) -> float:
        """How long until there is more to say of a stall; infinite where that is not known."""
        return math.inf if self.evidence is None else self.evidence.suspicion.silent_s(now)

    def turn(self, way: Way, now: float) -> None:
        """Hear what there is, and say what is due; ``identity``, ``run`` and ``host`` are known."""
        self._way = way
        self._receive()
        if self.refused or not self._send_hello(now) or not self._send_urgent(now):
            return
        self._look(now)
        if self._groups_due and not self._send(Groups, now, groups=self._groups):
            return
        self._groups_due = False
        self._send_beats(now)
        self._send_account(now)
        self._send_saves(now)
        self._send_checks(now)
        self._send_evidence(now)
        self._ping(now)

    def confirm(self, way: Way, until_s: float) -> None:
        """Have the hub confirm all that was sent: its pong to a ping sent last says so."""
        self._way = way
        if not self.refused and self._send_ping():
            while self._pings.unanswered and (left_s := until_s - time.monotonic()) > 0:
                self._receive(left_s)

    # sending

    def _send(self, kind: type[FromRank], now: float, **fields: Any) -> bool:
        assert self.identity is not None
        assert self._way is not None
        message = kind(self.identity.attempt, self.identity.rank, self.sequence.next, now, **fields)
        frame = frames.frame(message)
        if frame is None:  # dropped: what cannot be sent must not hold up the rest
            self.outbox.lost(len(fields.get("steps", ())))
            return True
        if not self._way.send(frame):
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
        assert self._way is not None
        if not self._way.takes():
            return False  # before the facts are read: that is dear, and this is asked at every turn
        self._hello_due = not self._send(
            Hello,
            now,
            run=self.run,
            world_size=self.identity.world_size,
            local_rank=self.identity.local_rank,
            host=self.host,
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
        self._memory_s = -1e9
        if self.saves is not None:
            self.saves.again()
        if self.account is not None:
            self.account.again()
        if self.evidence is not None:
            self.evidence.hub_is_new()
        return not self._hello_due

    def _send_urgent(self, now: float) -> bool:
        outbox = self.outbox
        while True:
            waiting = outbox.next_urgent()
            if waiting is None:
                return True
            kind, fields = waiting
            if kind is Goodbye:
                self._send_before_end(now)
            if not self._send(kind, now, **fields):
                return False
            outbox.urgent_sent()
            if kind is Raised and self.evidence is not None:
                self.evidence.raised()

    def _send_before_end(self, now: float) -> None:
        """What waits goes before a goodbye: whoever hears that looks at once what came of all."""
        with suppress(Exception):  # of theirs, told in their own turn: this is no time for it
            self._send_beats(now, self.phases.before_end)
            self._send_beats(now)
        for say in (self._send_account, self._send_saves, self._send_checks):
            with suppress(Exception):
                say(now)

    def _look(self, now: float) -> None:
        """Ask the probes that are read from this thread."""
        observer = self.observer
        if now - self._groups_s < GROUPS_EVERY_S and self._groups:
            return
        self._groups_s = now
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
            self._expected = self._what_is_expected(snapshot, now)
            news = (snapshot, statuses, self._expected, self.digest.data_over)
            if (
                not steps
                and not late
                and news == self._beat_of
                and now - self._beat_s + self.every_s < limits.BEAT_INTERVAL_S + EARLY_S
            ):
                return
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
                memory=self._read_memory(now),
                collectives=statuses if statuses != self._statuses else (),
                dropped=outbox.dropped,
                overhead_s_per_step=self.digest.overhead_s(),
                hub_offset_s=best.offset_s if best else None,
                hub_offset_error_s=best.error_s if best else None,
                expecting=self._expected,
                data_over=self.digest.data_over,
            )
            if not sent:
                return
            outbox.sent(len(steps), len(late))
            if self.evidence is not None:
                self.evidence.completed(steps)
            self._statuses, self._beat_of, self._beat_s = statuses, news, now
            if len(steps) < limits.MAX_STEPS_PER_BEAT:
                return

    def _read_memory(self, now: float) -> Memory | None:
        """What is taken now, unless it was read, and said, just before."""
        every_s = MEMORY_EVERY_S[self.calm(now) and not self.memory_rises(now)]
        if now - self._memory_s < every_s:
            return None
        self._memory_s = now
        observer = self.observer
        memory = observer.ask(observer.memory, observer.memory.read)
        if memory is not None:
            taken_bytes = memory.peak_allocated_bytes or memory.anonymous_bytes or 0
            if taken_bytes >= self._most_bytes + max(RISEN_BYTES, taken_bytes * RISEN_SHARE):
                self._most_bytes, self._rose_s = taken_bytes, now
        return memory

    def memory_rises(self, now: float) -> bool:
        """Whether it has reached what it never was before, just now."""
        return now - self._rose_s < RISES_S

    def _send_checks(self, now: float) -> None:
        while (waiting := self.outbox.next_check()) is not None:
            kind, fields = waiting
            if not self._send(kind, now, **fields):
                return
            self.outbox.check_sent()

    # what it says of a stall

    def _what_is_expected(self, snapshot: Snapshot, now: float) -> str:
        try:
            return "" if self.evidence is None else self.evidence.expected(snapshot, now)
        except Exception as error:  # noqa: BLE001 - the beats go on without
            self._no_evidence(error)
            return ""

    def _send_evidence(self, now: float) -> None:
        evidence = self.evidence
        if evidence is None:
            return
        try:
            evidence.saw(self.phases.snapshot, self._statuses)
            for kind, fields in evidence.words(now, self._expected):
                if not self._send(kind, time.monotonic(), **fields):
                    return
        except Exception as error:  # noqa: BLE001 - the rest of the talking goes on without
            self._no_evidence(error)

    def _no_evidence(self, error: Exception) -> None:
        """It failed: it is off, and that is told once, as of a probe."""
        self.evidence = None
        text = switch.one_line(error)
        step = self.phases.snapshot.step
        self.outbox.put_urgent(ProbeFault, probe="evidence", error=text, step=step)

    def _send_saves(self, now: float) -> None:
        for _ in range(SAVES_AT_ONCE):
            fields = self.saves.due(now) if self.saves is not None else None
            if self.saves is None or fields is None or not self._send(Saving, now, **fields):
                return
            self.saves.sent(now)

    def _send_account(self, now: float) -> None:
        for _ in range(SAVES_AT_ONCE):
            fields = self.account.due(now) if self.account is not None else None
            if self.account is None or fields is None or not self._send(Controlled, now, **fields):
                return
            self.account.sent()

    # what the hub says

    def _receive(self, wait_s: float = 0.0) -> None:
        assert self._way is not None
        for message in self._way.receive(wait_s):
            self._heard(message)

    def _heard(self, message: Message) -> None:
        if isinstance(message, Pong):
            self._pings.heard(message, time.monotonic())
        elif isinstance(message, WhoAreYou):
            self._hello_due = True
            self.outbox.send_again()
        elif isinstance(message, Inquire):
            mine = self.identity is not None and message.rank == self.identity.rank
            if mine and "checksums" in message.what:
                self._watched_s = time.monotonic()
            if mine and self.evidence is not None:
                self.evidence.answers.ask(message.what)
        elif isinstance(message, Order):
            if self.account is not None:
                self.account.control.ordered(
                    message.command,
                    message.request,
                    message.expires_s,
                    message.author,
                    message.target,
                    message.lasts_s,
                )
        elif isinstance(message, Refused):
            self.refused = True
            log.warning("rankscope: the hub refuses this rank: %s", message.text)

    def _ping(self, now: float) -> None:
        if self._pings.due(now) and self._send_ping():
            self._receive(PONG_WAIT_S)  # read at once: waiting for the next tick would blur it

    def _send_ping(self) -> bool:
        assert self._way is not None
        t_s = time.monotonic()
        if not self._way.send(codec.encode(Ping(t_s))):
            return False
        self._pings.sent(t_s)
        return True


def _this_thread() -> tuple[int]:
    return (threading.get_ident(),)


class Sequence:
    """Message numbers from 1, used up only by messages that left. One a process, for its life."""

    def __init__(self) -> None:
        self.next = 1

    def used(self) -> None:
        self.next += 1
