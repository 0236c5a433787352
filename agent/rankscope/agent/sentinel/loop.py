"""The sentinel's poll loop: pidfds, one socket and a clock. Nothing in it blocks."""

import math
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope.agent import moments
from rankscope.agent.evidence import blackbox
from rankscope.agent.evidence.blackbox import Call
from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel import host, report, stopped
from rankscope.agent.sentinel.deaths import Deaths
from rankscope.agent.sentinel.ending import Ending
from rankscope.agent.sentinel.foreign import Found, Reader
from rankscope.agent.sentinel.gpuwatch import GpuWatch
from rankscope.agent.sentinel.hubkeeper import POLL_S as HUB_POLL_S
from rankscope.agent.sentinel.hubkeeper import HubKeeper
from rankscope.agent.sentinel.link import Link
from rankscope.agent.sentinel.oom import OomWatch
from rankscope.agent.sentinel.registry import Registry
from rankscope.agent.sentinel.report import Death, Identity
from rankscope.agent.sentinel.stacks import read_stack_note
from rankscope.agent.sentinel.watch import Watch
from rankscope.protocol import limits
from rankscope.protocol.messages import Inquire, Message, Operation, Refused, RunOver, WhoAreYou

REPORT_S = 2 * stopped.POLL_S
MEMORY_S = 2 * REPORT_S
"""Between two readings of what the node and its groups have left: the kernel works that out for
each reader anew, and it is half of what a report costs."""

HELLO_GAP_S = 0.2
"""A hub that asks several times in one breath gets one hello."""
SOON_S = 0.1
"""A report comes so much before its time, or after it."""

MAX_CALLS = 48
"""Of a rank's last collectives so many are told."""
MAX_CALLS_OF_VICTIM = 24
MAX_LEFT = 64
"""Ranks whose last collectives are kept for a hub that is away."""
NO_PIDFD_POLL_S = 0.01
"""Where pidfds cannot be had, ends are looked for this often: launchers reap within 0.1 s."""


@dataclass(frozen=True)
class Settings:
    run: str
    node_dir: Path
    idle_exit_s: float


def new_identity(run: str) -> Identity:
    name = socket.gethostname()[: limits.MAX_NAME_CHARS - 16]
    return Identity(run, f"{name}:{secrets.token_hex(4)}", name, os.getpid())


class Loop:
    """Watches the ranks of one node until they are gone, the run is over or it is told to end."""

    def __init__(
        self,
        settings: Settings,
        link: Link,
        gpus: GpuWatch,
        keeper: HubKeeper | None,
        say: Callable[[str], None],
        renew: Callable[[], bool] = lambda: True,
    ) -> None:
        """``renew`` says with every report whether this is still the node's one sentinel."""
        self._renew = renew
        self._settings = settings
        self._link = link
        self._gpus = gpus
        self._keeper = keeper
        self._say = say
        self._identity = new_identity(settings.run)
        self._registry = Registry(settings.node_dir)
        self._oom = OomWatch()
        self._watches: list[Watch] = []
        self._by_pidfd: dict[int, Watch] = {}
        self._left_bytes: tuple[int | None, int | None] = None, None  # and the limit
        self._left_t_s = -math.inf
        self._deaths = Deaths()
        self._reader = Reader()
        self._left: list[tuple[Found, tuple[Operation, ...]]] = []  # by ranks that have ended
        self._poller = select.poll()  # half of what libzmq's own takes with cold caches
        for descriptor in link.descriptors():
            self._poller.register(descriptor, select.POLLIN)
        self._stack_note = read_stack_note()
        self._facts = host.facts()
        self._gpu_note = ""
        self._seq = 0
        self._hello_due = True
        self._hub_is_new = True
        self._hello_t_s = -HELLO_GAP_S
        self._report_due = True
        self._refused = False
        self._came_t_s = -math.inf  # when a rank came last
        self._last_death_t_s = 0.0
        self._sent_t_s = -math.inf  # when the hub last took a message
        self.stopped_by_signal = False
        self.run_over = False
        self.displaced = False

    # --- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the run is over, the ranks have been gone for the idle time, or a signal came.

        Before the first rank it is the hub that must have been gone that long: a sentinel that
        came first waits for ranks that may take minutes to import.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        now = time.monotonic()
        tick_t_s = report_t_s = hub_t_s = alive_t_s = now
        while not (self.stopped_by_signal or self.run_over or self.displaced):
            now = time.monotonic()
            if now >= tick_t_s:
                tick_t_s = now + moments.until_next_s(self._tick_s(now), now)
                self._tick(now)
            if self._keeper is not None and now >= hub_t_s:
                hub_t_s = now + HUB_POLL_S
                self._keeper.poll(now)
            if now >= report_t_s:
                report_t_s = now + moments.until_next_s(REPORT_S, now)
                self.displaced = not self._renew()
                self._oom.poll(now)
                self._report_due = True
            self._flush(now)
            if self._live():
                alive_t_s = now
            elif not self._watches:
                alive_t_s = max(alive_t_s, self._sent_t_s)
            if now - alive_t_s >= self._settings.idle_exit_s:
                break
            self._wait(min(tick_t_s, report_t_s))

    def look_for_new(self) -> bool:
        """Whether a rank has registered that is alive: the sentinel has to go on."""
        self._take_new(time.monotonic())
        return bool(self._live())

    def tidy(self) -> None:
        """Remove the registrations of the ended ranks, or all when the run is over."""
        ended = [w.registration for w in self._watches if w.state == "ended"]
        self._registry.tidy(None if self.run_over else ended)

    def close(self) -> None:
        """No stack is read any more."""
        self._reader.close()

    def remove_folders(self) -> None:
        self._registry.remove()

    def _on_signal(self, number: int, frame: object) -> None:
        self.stopped_by_signal = True

    def _live(self) -> list[Watch]:
        return [w for w in self._watches if w.state != "ended"]

    def _tick_s(self, now: float) -> float:
        live = self._live()
        if any(watch.pidfd is None for watch in live):
            return NO_PIDFD_POLL_S
        young = not live or now - self._came_t_s < stopped.YOUNG_S
        return stopped.YOUNG_POLL_S if young else stopped.POLL_S

    def _wait(self, until_t_s: float) -> None:
        timeout_ms = max(0, int((until_t_s - time.monotonic()) * 1000) + 1)
        if self._link.has_come():
            timeout_ms = 0  # the link's descriptors tell only of what comes from now on
        ready = [fd for fd, _ in self._poller.poll(timeout_ms)]
        now = time.monotonic()
        # Deaths first: what the hub says can wait, and may make this sentinel end.
        self._take_endings([self._by_pidfd[fd] for fd in ready if fd in self._by_pidfd], now)
        for message in self._link.drain():
            self._take(message)

    def _tick(self, now: float) -> None:
        self._take_new(now)
        ended = []
        for watch in self._live():
            if watch.look(now):
                self._report_due = True
            if watch.pidfd is None and watch.has_ended():
                ended.append(watch)
        self._take_endings(ended, now)
        note = self._gpus.now(now)[1]
        if note != self._gpu_note:
            self._gpu_note = note
            self._hello_due = True

    # --- processes -----------------------------------------------------------------------------

    def _take_new(self, now: float) -> None:
        for registration in self._registry.new(time.time_ns()):
            watch = Watch(registration, now)
            self._watches.append(watch)
            self._came_t_s = now
            self._report_due = True
            if watch.pidfd is not None:
                self._poller.register(watch.pidfd, select.POLLIN)
                self._by_pidfd[watch.pidfd] = watch
            if watch.found:
                self._oom.add(registration.pid, now)
                self._left_t_s = -math.inf  # it may be in another group
            else:
                self._take_endings([watch], now)

    def _take_endings(self, watches: list[Watch], now: float) -> None:
        """Several that were seen ended in one glance: decide their order, then tell."""
        if not watches:
            return
        watches.sort(key=self._watches.index)  # poll's order means nothing
        endings = []
        left: dict[int, bytes] = {}
        for index, watch in enumerate(watches):
            if watch.pidfd is not None:
                self._poller.unregister(watch.pidfd)
                del self._by_pidfd[watch.pidfd]
            left[index] = watch.left()
            ending = watch.end(now)
            endings.append((index, ending))
            self._keep(watch.registration, ending, blackbox.read(left[index]))
        found = dict(endings)
        for index in report.first_cause_first(endings):
            # Times tell the order also to a hub that sorts by them.
            self._last_death_t_s = max(now, self._last_death_t_s + 1e-6)
            pid = watches[index].registration.pid
            oom = found[index].signal == signal.SIGKILL and self._oom.killed(pid, now)
            self._oom.forget(pid)
            self._reader.forget(watches[index].registration)
            self._deaths.add(
                Death(
                    watches[index].registration,
                    found[index],
                    oom,
                    self._last_death_t_s,
                    blackbox.finished(left[index]),
                )
            )
        self._report_due = True
        self._flush(now)

    def _keep(self, registration: Registration, ending: Ending, calls: list[Call]) -> None:
        """What a rank left behind that did not end in order.

        Those that the launcher ends count as well: one of them may have caused it all, and had no
        time to say anything.
        """
        if calls and ending.exit_code != 0:
            most = MAX_CALLS_OF_VICTIM if ending.signal == signal.SIGTERM else MAX_CALLS
            operations = blackbox.operations(calls[-most:], time.time_ns())
            self._left.append((Found(registration, None, False), operations))
            del self._left[:-MAX_LEFT]

    # --- talking -------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if isinstance(message, RunOver):
            self.run_over = True
        elif isinstance(message, WhoAreYou):
            self._hello_due = self._hub_is_new = True
        elif isinstance(message, Inquire):
            self._read_stacks(message)
        elif isinstance(message, Refused) and not self._refused:
            self._refused = True
            self._say(f"the hub refuses this sentinel: {message.text}")

    def _read_stacks(self, inquiry: Inquire) -> None:
        """Have that rank's newest process read, where it lives on this node."""
        if "foreign_stacks" in inquiry.what:
            of_rank = [w for w in self._live() if w.registration.rank == inquiry.rank]
            if of_rank:
                newest = max(of_rank, key=lambda watch: watch.registration.attempt)
                self._reader.ask(newest.registration, time.monotonic())

    def _send(self, build: Callable[[int], Message]) -> bool:
        """Numbers are used up by messages that went: what was not sent was not lost on the way."""
        sent = self._link.send(build(self._seq + 1))
        self._seq += sent
        if sent:
            self._sent_t_s = time.monotonic()
        return sent

    def _flush(self, now: float) -> None:
        """Send what is due: the hello, deaths in their order, then the report."""
        if self._link.met():
            self._hello_due = self._hub_is_new = True
            self._hello_t_s = -math.inf
        if self._hello_due and now - self._hello_t_s >= HELLO_GAP_S:
            if not self._send(lambda seq: self._hello(seq, now)):
                return  # away; nothing may come before the hello once it is there
            self._hello_due = False
            self._hello_t_s = now
            self._report_due = True
            if self._hub_is_new:
                self._hub_is_new = False
                self._deaths.tell_all_again()
        self._deaths.tell(lambda death: self._send(self._ended(death)))
        while self._left and self._send(self._foreign(*self._left[0])):
            del self._left[0]
        for found in self._reader.found():
            self._send(self._foreign(found, self._called(found)))
        if self._report_due:
            self._report_due = False
            self._send(lambda seq: self._report(seq, now))

    def _hello(self, seq: int, now: float) -> Message:
        return report.node_hello(
            self._identity,
            seq,
            now,
            gpu_note=self._gpu_note,
            stack_note=self._stack_note,
            facts=self._facts,
        )

    def _ended(self, death: Death) -> Callable[[int], Message]:
        return lambda seq: report.process_ended(self._identity, seq, time.monotonic(), death)

    def _called(self, found: Found) -> tuple[Operation, ...]:
        """What the rank that was read has called last."""
        calls = [
            call
            for watch in self._live()
            if watch.registration == found.registration
            for call in blackbox.read(watch.left())
            if call.what.group
        ]
        return blackbox.operations(calls[-MAX_CALLS:], time.time_ns())

    def _foreign(self, found: Found, operations: tuple[Operation, ...]) -> Callable[[int], Message]:
        return lambda seq: found.message(self._identity.node, seq, time.monotonic(), operations)

    def _report(self, seq: int, now: float) -> Message:
        if now - self._left_t_s >= MEMORY_S - SOON_S:
            self._left_t_s = now
            available = host.memory_available_bytes(), self._oom.available_bytes()
            self._left_bytes = _least(*available), self._oom.limit_bytes()
        available_bytes, limit_bytes = self._left_bytes
        return report.node_report(
            self._identity,
            seq,
            now,
            processes=[watch.sample(now) for watch in self._watches],
            gpus=self._gpus.now(now)[0],
            load_1min=host.load_1min(),
            memory_available_bytes=available_bytes,
            memory_limit_bytes=limit_bytes,
            oom_kills=self._oom.kills,
        )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
