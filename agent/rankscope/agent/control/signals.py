"""A scheduler's warning signal as a request to save and stop, from the rank itself.

The signal is not swallowed. What was there before is called as ever; and where nothing was, the
signal does what it would have done without us, unless training stops because of it: when no
boundary comes in time, when the ranks do not agree, when the save fails, or when a second signal
comes. That is done by a thread, because a handler in Python does not run while the training thread
waits in a collective: it hears of signals through a descriptor that the interpreter's own handler
writes to.
"""

import ctypes
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

from rankscope.agent.control.control import Control

log = logging.getLogger("rankscope")

GRACE_S = 5.0
GRACE_STEPS = 3.0
"""A boundary has to come within both of these; the second is in steps as they were lately."""

SAME_S = 0.5
"""A launcher and its scheduler may both pass the same signal on: one signal, as long as they are
this close."""

LOOK_S = 0.1


def numbers(given: Any) -> tuple[int, ...]:
    """The signals that ``on_signal`` names; whatever cannot be one is left out with a line."""
    if given is None:
        return ()
    found = []
    for one in given if isinstance(given, Iterable) and not isinstance(given, str) else (given,):
        try:
            number = signal.Signals(one)
        except (ValueError, TypeError):
            log.warning("rankscope: on_signal: %.40r is no signal; name one as signal.SIGUSR1", one)
            continue
        if number in (signal.SIGKILL, signal.SIGSTOP):
            log.warning("rankscope: on_signal: %s cannot be handled by anybody", number.name)
        else:
            found.append(int(number))
    return tuple(dict.fromkeys(found))


def _nothing(number: int, frame: FrameType | None) -> None:
    """A signal that is not meant for this process."""


class Signals:
    """Of one process; ``wanted`` are the signals."""

    def __init__(self, wanted: Iterable[int], control: Control) -> None:
        self._wanted = tuple(wanted)
        self._control = control
        self._previous: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(True)
        self._writer.setblocking(False)
        self._asked = False
        self._ours = False  # whether the interpreter writes to our descriptor
        self._thread = threading.Thread(target=self._watch, name="rankscope-signals", daemon=True)

    def install(self) -> None:
        """Raises :class:`ValueError` on another than the main thread."""
        try:
            for number in self._wanted:
                self._previous[number] = signal.signal(number, self._handle)
        except ValueError:
            self._reader.close()
            self._writer.close()
            raise
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._ours = before == -1
        if not self._ours:  # somebody else's: then the handler has to write, as soon as it may run
            signal.set_wakeup_fd(before)
        self._thread.start()
        self._control.listen()

    def uninstall(self) -> None:
        """Put back what was there. Only on the main thread, which else keeps what it has."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if previous is None else previous)
        if self._ours:
            self._ours = False
            found = signal.set_wakeup_fd(-1)
            if found not in (-1, self._writer.fileno()):
                signal.set_wakeup_fd(found)
        self._writer.close()  # which ends the thread

    def abandon(self) -> None:
        """In a forked child, a loader's worker say: the signal is meant for the rank.

        A scheduler sends it to all processes, and a worker that dies of it would end the run in
        the middle of its last save. What the child executes has the default disposition again.
        """
        self.uninstall()
        for number, previous in self._previous.items():
            if previous in (signal.SIG_DFL, None):
                signal.signal(number, _nothing)
        self._reader.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, when that comes to it. What was there before is called as ever."""
        if not self._heard():
            self._writer.send(bytes([number]))
        previous = self._previous.get(number)
        if callable(previous):
            previous(number, frame)

    def _heard(self) -> bool:
        """Whether the interpreter has written of it to our descriptor.

        An event loop of the user's that handles signals takes that for itself, and when it is
        closed nobody is written to any more.
        """
        if not self._ours:
            return False
        ours = self._writer.fileno()
        found = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        if found not in (-1, ours):
            signal.set_wakeup_fd(found)
        return found == ours

    # --- the thread ---------------------------------------------------------------------------

    def _watch(self) -> None:
        with self._reader:
            self._listen()

    def _listen(self) -> None:
        last_s = -1e9
        while received := self._received():
            for number in received:
                if number not in self._previous:
                    continue
                now_s = time.monotonic()
                same, last_s = now_s - last_s < SAME_S, now_s
                if same:
                    continue
                if self._asked:
                    self._act(number, "a second one came")
                    continue
                self._asked = True
                name = signal.Signals(number).name
                log.warning("rankscope: %s: the ranks are asked to save and stop", name)
                self._control.ring(number, name)
                given = number, now_s
                threading.Thread(target=self._see_to_it, args=given, daemon=True).start()

    def _received(self) -> bytes:
        try:
            return self._reader.recv(64)
        except OSError:
            return b""

    def _see_to_it(self, number: int, asked_s: float) -> None:
        """Wait until training stops, or the signal has to do what it would have done."""
        grace_s = max(GRACE_S, GRACE_STEPS * self._control.turns.step_s())
        while time.monotonic() - asked_s < grace_s and not self._control.obeys:
            time.sleep(LOOK_S)
        why = f"no boundary at which all ranks could stop within {grace_s:.0f} s"
        while self._control.obeys:
            if self._control.stop_step:
                return
            why = "training has not stopped because of it"
            time.sleep(LOOK_S)
        self._asked = False
        self._act(number, why)

    def _act(self, number: int, why: str) -> None:
        """Where no handler was before: the default disposition, and the signal sent again."""
        if self._previous.get(number) not in (signal.SIG_DFL, None):
            return
        log.warning("rankscope: %s takes effect: %s", signal.Signals(number).name, why)
        # Not signal.signal, which is for the main thread alone, and that may be in a collective.
        ctypes.CDLL(None).signal(number, ctypes.c_void_p(0))
        os.kill(os.getpid(), number)
