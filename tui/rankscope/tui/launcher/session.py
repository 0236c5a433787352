"""One supervised run from its directory to its final word."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from rankscope.protocol import env, launch, messages, procs, rundir
from rankscope.protocol.exits import UserError
from rankscope.protocol.pasting import named, words_for
from rankscope.protocol.shapes import Status
from rankscope.tui.feed.client import HubClient
from rankscope.tui.feed.merge import ENDED_STATES
from rankscope.tui.launcher.child import (
    ASK,
    WARNINGS,
    Child,
    Signals,
    exit_on_signals,
    in_foreground,
    reached_the_group,
)
from rankscope.tui.launcher.supervisor import Supervisor, wake
from rankscope.tui.launcher.unheeded import Unheeded
from rankscope.tui.text.output import complain

POLL_S = 0.05
IDLE_POLL_S = 0.5
"""While nothing is due: the end of the command, and of its hub, is told by a signal."""

SEND_S = 0.5
"""One try at telling the hub something."""
FINAL_WORD_S = 6.0
"""How long the hub may take to have the final state, a restart of it included."""
VERDICT_S = 1.5
"""How long after the command's end its cause is waited for where it failed, and the ranks' last
words: the finding of an end that a collective may have brought about is a moment late, and so may a
rank's or a sentinel's word be."""


def say(text: str) -> None:
    """A line of our own among the training command's output."""
    complain(f"rankscope: {text}")


def check_command(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
    """Raise :class:`UserError` (exit 2) when ``command`` cannot be started, before anything is."""
    if not command or not command[0]:
        raise UserError("no command given; write it after --: rankscope run -- python train.py")
    name = command[0]
    if shutil.which(name, path=environ.get("PATH")) is None:
        if os.sep in name and Path(name).is_dir():
            raise UserError(f"{name!r} is a folder, not a command; name a program in it")
        if os.sep in name and Path(name).exists():
            raise UserError(
                f"{name!r} may not be executed; make it so (chmod +x) or name its interpreter: "
                f"python {name}"
            )
        raise UserError(f"there is no command {name!r}; check its name and PATH")


@dataclass
class Session:
    """A run directory with a live hub, and the command that trains."""

    directory: rundir.RunDirectory
    supervisor: Supervisor
    endpoint: str
    name: str
    child: Child | None = None
    sentinel: "subprocess.Popen[bytes] | None" = None
    signals: list[int] = field(default_factory=list)
    """Those passed on to the command, in order."""
    had_terminal: bool = field(default_factory=lambda: in_foreground() is not None)
    tell: Callable[[str], None] = say
    unheeded: Unheeded = field(default_factory=Unheeded)

    @classmethod
    def open(
        cls,
        command: Sequence[str],
        *,
        name: str,
        run_id: str | None = None,
        bind: str | None = None,
        port: int | None = None,
    ) -> "Session":
        """Make the run directory and start its hub. Leaves nothing behind when it cannot."""
        home = rundir.runs_home()
        now_s = time.time()
        directory = rundir.create(
            home, run_id or rundir.new_run_id(now_s), command=list(command), name=name, now_s=now_s
        )
        us = rundir.HubProcess(os.getpid(), procs.start_time_s(os.getpid()) or 0.0)
        directory.write_info(msgspec.structs.replace(directory.read_info(), launcher=us))
        supervisor = Supervisor(directory)
        try:
            with exit_on_signals():
                info = supervisor.start(bind=bind, port=port)
        except BaseException:
            _remove(home, directory)
            raise
        assert info.endpoint is not None
        session = cls(directory, supervisor, info.endpoint, name)
        session.start_sentinel()
        return session

    def command(self, verb: str) -> str:
        """``rankscope VERB`` of this run, to be pasted into another terminal."""
        return named(f"rankscope {verb}", words_for(self.directory.path))

    def start_sentinel(self) -> None:
        """Have this node watched before its first rank is there: early deaths are the commonest.

        Without it nothing is lost but that: the first rank starts one, too.
        """
        with contextlib.suppress(OSError, UserError):
            self.sentinel = launch.spawn_sentinel(self.directory.read_key("agent"), self.endpoint)

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The command's environment: ``base`` and where the hub is."""
        return {
            **base,
            env.HOME: str(self.directory.path.parent.parent),
            env.RUN: self.directory.run,
            env.ENDPOINT: self.endpoint,
            env.AGENT_KEY: str(self.directory.key_path("agent")),
            **({env.NAME: self.name} if self.name else {}),
        }

    def start(
        self,
        command: Sequence[str],
        output: IO[bytes] | None = None,
        *,
        stdin: int | None = None,
        own_group: bool = False,
        extra: Mapping[str, str] | None = None,
        signals: Signals | None = None,
    ) -> Child:
        """Start ``command``; ends the hub and removes the directory when it cannot be started.

        Nor is it started when one of ``signals`` came: raises ``SystemExit`` (128+n) then.
        """
        try:
            for number in signals.take(ASK) if signals is not None else ():
                raise SystemExit(128 + number)
            self.child = Child(
                command,
                {**self.environ(), **(extra or {})},
                output,
                stdin=stdin,
                own_group=own_group,
            )
        except BaseException:
            self.discard()
            raise
        return self.child

    def end(self) -> None:
        """End hub and sentinel at once; the run directory stays."""
        if self.sentinel is not None:
            self.sentinel.terminate()
            try:
                self.sentinel.wait(3.0)
            except subprocess.TimeoutExpired:
                self.sentinel.kill()
                self.sentinel.wait()
        self.supervisor.end()

    def discard(self) -> None:
        """End the hub and remove the directory: nothing was trained."""
        self.end()
        _remove(self.directory.path.parent, self.directory)

    def pass_on(self, number: int) -> None:
        """Hand a signal we got to the command, unless the terminal has done so."""
        if self.child is not None and not reached_the_group(number, self.had_terminal):
            self.child.send(number)
        self.signals.append(number)
        if number in ASK:
            self.unheeded.asked(number, time.monotonic())

    def end_command(self, patience_s: float, signals: Signals | None = None) -> int:
        """Ask the command to end, as :meth:`Child.end` does, and remember that for its end's
        account."""
        assert self.child is not None
        self.signals.append(signal.SIGTERM)
        return self.child.end(patience_s, signals)

    def wait(self, signals: Signals, each: Callable[[], None] | None = None) -> int:
        """Supervise until the command ends, and pass ``signals`` on to it; its exit code.

        In the main thread only. ``each`` is called about every 50 ms.
        """
        while (code := self._tick()) is None:
            for number in signals.take():
                self.pass_on(number)
            if (words := self.unheeded.words(time.monotonic())) is not None:
                self.tell(words)
            if each is not None:
                each()
            idle = each is None and not self.supervisor.restarting
            signals.wait(IDLE_POLL_S if idle else POLL_S)
        return code

    def wait_unheeding(self) -> int:
        """As :meth:`wait`, from any thread, and no signal is passed on."""
        while (code := self._tick()) is None:
            time.sleep(POLL_S)
        return code

    def wait_in_thread(
        self, until: threading.Event, signals: Signals | None = None
    ) -> threading.Thread:
        """Supervise in a thread until ``until`` is set: the main thread shows a dashboard, which
        heeds all of ``signals`` but a scheduler's warnings: these are passed on.

        The command's end is told to the hub at once: whoever looks would take a run whose
        launcher is still there for one that may begin again. :meth:`finish` is needed all the same.
        """

        def supervise() -> None:
            while (code := self._tick()) is None:
                for number in signals.take(WARNINGS) if signals is not None else ():
                    self.pass_on(number)
                if until.wait(POLL_S):
                    return
            self._tell_end(code, until)

        thread = threading.Thread(target=supervise, name="rankscope-supervisor", daemon=True)
        thread.start()
        return thread

    def finish(self, code: int) -> Status | None:
        """Tell the hub that the run ended, and wait until it has the final state.

        None when no hub could be told: that one is ended then, and the end is in ``run.json``.
        """
        assert self.child is not None
        wake(self.sentinel)
        self.supervisor.wake()
        deadline = time.monotonic() + FINAL_WORD_S
        try:
            if not self.supervisor.failing:
                self._send_run_end(self._run_end(code), deadline)
                return self._final_status(deadline)
        except UserError:
            pass
        finally:
            self.supervisor.let_go()
        if self.child.died_of is None:  # else ranks may go on: a hub that comes to itself is theirs
            self._end_untold(code)
        return None

    def _end_untold(self, code: int) -> None:
        """Leave no hub that hears nothing, and the command's end where it is looked for."""
        if self.sentinel is not None:
            self.sentinel.terminate()  # there is no hub to tell it that the run is over
        self.supervisor.end()
        with contextlib.suppress(UserError, OSError):  # the directory may be gone
            info = self.directory.read_info()
            if info.exit_code is None and not rundir.hub_is_alive(info):
                ended_s = time.time() if info.ended_s is None else info.ended_s
                self.directory.write_info(
                    msgspec.structs.replace(info, ended_s=ended_s, exit_code=code)
                )

    def _tick(self) -> int | None:
        assert self.child is not None
        try:
            words = self.supervisor.poll(time.monotonic())
        except Exception as error:  # noqa: BLE001 - the command's own end matters more than the hub
            self.supervisor.let_go()
            words = f"the hub is not looked after any more ({error}); your command goes on"
        if words is not None:
            self.tell(words)
        return self.child.poll()

    def _tell_end(self, code: int, until: threading.Event) -> None:
        """Try until the hub, or the next one, has the command's end, or ``until`` is set."""
        end = self._run_end(code)
        with (
            contextlib.suppress(UserError),  # a key that cannot be read: nothing can be told
            HubClient(self.endpoint, self.directory.read_key("agent")) as client,
        ):
            while not until.is_set():
                try:
                    client.send(end, timeout_s=SEND_S)
                    return
                except UserError:
                    self._tick()  # it may have to be started again
                    until.wait(POLL_S)

    def _run_end(self, code: int) -> messages.RunEnd:
        assert self.child is not None
        # The newest: the command may have gone on after those before it.
        asked = next((one for one in reversed(self.signals) if one not in WARNINGS), None)
        return messages.RunEnd(code, self.child.died_of, asked)

    def _send_run_end(self, message: messages.RunEnd, deadline: float) -> None:
        with HubClient(self.endpoint, self.directory.read_key("agent")) as client:
            while True:
                try:
                    client.send(message, timeout_s=SEND_S)
                    return
                except UserError:
                    self.supervisor.poll(time.monotonic())
                    self.supervisor.wake()
                    if time.monotonic() > deadline:
                        raise

    def _final_status(self, deadline: float) -> Status | None:
        verdict_by = time.monotonic() + VERDICT_S
        with HubClient(self.endpoint, self.directory.read_key("operator")) as client:
            while True:
                self.supervisor.poll(time.monotonic())
                body = client.ask("status", timeout_s=max(0.1, deadline - time.monotonic())).body
                assert isinstance(body, Status)
                now = time.monotonic()
                if now > deadline:
                    return body
                waits = _cause_missing(body) or _ends_missing(body)
                if body.state in ENDED_STATES and (now > verdict_by or not waits):
                    return body
                if any(finding.kind == "ranks-orphaned" for finding in body.findings):
                    return body  # they may train on for days
                time.sleep(POLL_S)


def _cause_missing(status: Status) -> bool:
    """Whether a run failed and nothing found so far says why: a straggler is no reason to end."""
    told = any(f.severity == "critical" or f.kind == "run-interrupted" for f in status.findings)
    return status.state == "failed" and not told


def _ends_missing(status: Status) -> bool:
    """Whether ranks are not known to have ended: their last steps may be on their way, too."""
    return any(row.pid is not None and row.link != "down" for row in status.ranks)


def _remove(home: Path, directory: rundir.RunDirectory) -> None:
    """Take back a run directory in which nothing ever ran."""
    shutil.rmtree(directory.path, ignore_errors=True)
    latest = home / "latest"
    with contextlib.suppress(OSError):
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
            older = rundir.list_runs(home)
            if older:
                latest.symlink_to(older[0].run)
