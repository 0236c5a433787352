"""The observation of one process from attach to end: the observer, its sender, and how it ends."""

import atexit
import contextlib
import logging
import multiprocessing.util
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rankscope.agent import events, forks, goneon, switch
from rankscope.agent.control import wiring
from rankscope.agent.control.account import Account
from rankscope.agent.control.control import Control
from rankscope.agent.control.reports import Reports
from rankscope.agent.control.signals import Signals
from rankscope.agent.observer import Observer
from rankscope.agent.probes.batches import timed
from rankscope.agent.sender import Sender
from rankscope.agent.talk import Sequence

log = logging.getLogger("rankscope")

Batch = TypeVar("Batch")


class Session:
    """Begun by the registry. No method but ``abandon`` may be called in a forked child."""

    def __init__(self, name: str, start_step: int, sequence: Sequence) -> None:
        self.observer = Observer()
        self.observer.start_step = start_step
        self.sender = Sender(self.observer, name, start_step, sequence)
        self.control: Control | None = wiring.control(start_step, self._held)
        self.sender.talk.account = Account(self.control)
        self.signals: Signals | None = None
        self.closed = False
        guard = self.observer.guard
        self._end_step = guard(self.observer.step, self.observer.step.on_end_step)

    def start(self) -> None:
        """Raises what keeps the thread from starting; then no hook stays behind."""
        try:
            self._start()
        except BaseException:
            self.closed = True
            switch.contained(self.observer.uninstall, self.sender.end, self._forget_exit)
            raise

    def _start(self) -> None:
        self.sender.start()  # first: it may fail, and hooks that nobody reads are a burden
        self.observer.urgent = self.sender.wake
        self.observer.install()
        atexit.register(self.at_exit)
        if multiprocessing.parent_process() is not None:
            # A multiprocessing child may end without running atexit: this it does run.
            multiprocessing.util.Finalize(None, self.at_exit, exitpriority=100)

    def control_with(self, checkpoint: Any) -> None:
        """Follow requests for checkpoints with ``checkpoint``, a Checkpointer; the first counts."""
        from rankscope.agent.checkpoint import Checkpointer

        control = self.control
        if control is not None and control.saver is None and isinstance(checkpoint, Checkpointer):
            control.save_with(checkpoint)
            self.sender.talk.saves = Reports(checkpoint)

    def stop_on(self, given: Any) -> None:
        """Have the signals in ``given`` ask for a checkpoint and stop; the first call counts."""
        if self.signals is None and self.control is not None:
            self.signals = wiring.signals(given, self.control)

    def watch(self, model: Any, optimizer: Any) -> None:
        self.observer.watch(model, optimizer)

    # what the agent's handle offers

    def batches(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        if self.closed:
            return loader
        probe = self.observer.loader
        found: Iterable[Batch] | None = self.observer.ask(probe, lambda: timed(loader, probe))
        return loader if found is None else found

    def expect(self, what: Any) -> contextlib.AbstractContextManager[None]:
        if self.closed or not isinstance(what, str):
            return contextlib.nullcontext()
        return self.sender.talk.expecting.declared(what)

    def end_step(self, loss: Any, tokens: Any) -> bool:
        """Whether training is to go on."""
        self._end_step(loss, tokens)
        return self.control is None or self.closed or self._boundary(self.control)

    def _boundary(self, control: Control) -> bool:
        """The one point at which an operator's request is acted on."""
        try:
            return control.boundary()
        except Exception as error:
            if switch.is_users(error):
                raise
            log.warning("rankscope: no more commands are followed: %s", switch.one_line(error))
            control.unable = f"a fault of its own: {switch.one_line(error)}"
            control.close("follows no more commands")
            self.control = None
            return control.stop_step == 0

    @property
    def should_stop(self) -> bool:
        return self.control is not None and self.control.stop_step > 0

    @contextlib.contextmanager
    def _held(self, what: str) -> Iterator[None]:
        """The training thread stands at a boundary; that is no part of any step."""
        try:
            with self.sender.talk.expecting.declared(what):
                yield
        finally:
            self.observer.noted.append((events.HELD, time.monotonic()))

    def pause(self) -> None:
        if not self.closed:
            self.observer.uninstall()
            self.observer.noted.append((events.PAUSED, time.monotonic()))
            self.sender.pause()

    def resume(self) -> None:
        if not self.closed:
            self.sender.resume()
            self.observer.install()

    def costs_s(self) -> tuple[float, float]:
        return self.observer.spent_s, self.observer.kernel_s

    def leave(self, error: BaseException | None) -> None:
        """The ``with`` block ends."""
        if error is None or (isinstance(error, SystemExit) and not error.code):
            if not self.closed:
                switch.contained(self.sender.talk.issued.linger)
            self.close("finished")
        else:
            switch.contained(lambda: self.observer.raised(error), lambda: self.close("exception"))

    # the end

    def at_exit(self) -> None:
        """The interpreter ends. What ended it is looked for where a hook may not have seen it."""
        if self.closed:
            return
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if isinstance(error, SystemExit):  # multiprocessing turns an exception into this
            error = error.__context__ if error.code else None
        found = error if isinstance(error, BaseException) else None
        switch.contained(
            lambda: None if found is None else self.observer.raised(found),
            lambda: self.close("finished" if self.observer.reported is None else "exception"),
        )

    def close(self, reason: str) -> None:
        """Remove every hook, tell the hub, and end the thread: at most 200 ms."""
        if self.closed:
            return
        self.closed = True
        noted = self.observer.noted
        switch.contained(
            lambda: self.sender.talk.issued.finished(reason),
            self._end_control,
            self.observer.read_late,
            self.observer.uninstall,
            lambda: noted.append((events.CLOSED, time.monotonic(), reason)),
            self.sender.end,
            self._forget_exit,
            goneon.ended,
        )

    def _end_control(self) -> None:
        if self.signals is not None:
            self.signals.uninstall()
        if self.control is not None:
            self.control.close("has ended")

    def _forget_exit(self) -> None:
        atexit.unregister(self.at_exit)

    def abandon(self) -> None:
        """In a forked child: nothing of this session acts any more."""
        self.closed = True
        forks.keep(self)
        switch.contained(
            lambda: None if self.signals is None else self.signals.abandon(),
            self.observer.abandon,
            self.sender.abandon,
        )
