"""``rankscope run``: the command in the foreground, or behind a dashboard with ``--tui``."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Status
from rankscope.tui.launcher.child import Signals
from rankscope.tui.launcher.session import Session, check_command, say
from rankscope.tui.words.verdict import verdict

LOG_NAME = "command.log"


def run(
    command: Sequence[str],
    *,
    name: str,
    run_id: str | None,
    bind: str | None,
    port: int | None,
) -> int:
    """Run ``command`` with stdin, stdout and stderr untouched; its exit code (128+n)."""
    check_command(command)
    with Signals() as signals:
        session = Session.open(command, name=name, run_id=run_id, bind=bind, port=port)
        say(f"run {session.directory.run}; watch it with: {session.command('top')}")
        session.start(command, signals=signals)
        code = session.wait(signals)
        say(last_words(session, code, session.finish(code)))
    return code


def run_beside_dashboard(
    command: Sequence[str],
    *,
    name: str,
    run_id: str | None,
    bind: str | None,
    port: int | None,
) -> int:
    """Run ``command`` with its output in a file, a dashboard on the terminal until it is quit.

    Quitting the dashboard leaves the command running; then Ctrl-C reaches it.
    """
    check_command(command)
    from rankscope.tui.view import on_terminal

    if not on_terminal():
        raise UserError("--tui needs a terminal; without one leave it out and use: rankscope top")
    with Signals() as signals:
        session = Session.open(command, name=name, run_id=run_id, bind=bind, port=port)
        log = session.directory.path / LOG_NAME
        with private_log(log) as output:
            session.start(command, output, stdin=subprocess.DEVNULL, signals=signals)
            say(f"the command's output goes to {log}")
            code = dashboard_then_wait(session, signals, name or session.directory.run)
        say(last_words(session, code, session.finish(code)))
        say(f"the command's output is in {log}")
    return code


def dashboard_then_wait(session: Session, signals: Signals, title: str) -> int:
    """Show the dashboard until it is quit, then wait for the command; its exit code."""
    from rankscope.tui.view import show

    assert session.child is not None
    quit_ = threading.Event()
    supervisor = session.wait_in_thread(quit_, signals)

    def leave(left: int) -> bool:
        """Whether the command is asked to end, too: by a key only the dashboard is."""
        quit_.set()
        supervisor.join()
        for_all = left - 128 in (signal.SIGTERM, signal.SIGHUP)
        if for_all:
            session.pass_on(left - 128)
        return for_all

    def at_last(left: int) -> int:
        """The terminal reads nothing: there is no more to say, and the command is waited for."""
        leave(left)
        code = session.wait_unheeding()
        session.finish(code)
        return code

    # The dashboard heeds signals by itself; one that came before it is for the command.
    left = 0 if signals else show(session.directory, title=title, readonly=False, at_last=at_last)
    if not leave(left) and session.child.poll() is None and not signals:
        say(f"the command goes on; Ctrl-C ends it; look again with: {session.command('top')}")
    return session.wait(signals)


def private_log(path: Path) -> IO[bytes]:
    """A new file for a command's output, mode 0600."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def last_words(session: Session, code: int, status: Status | None) -> str:
    """The one line that ends a run."""
    again = f"look again with: {session.command('status')}"
    if status is None:
        return f"run {session.directory.run} ended with exit code {code}, unwatched; {again}"
    found = verdict(
        state=status.state,
        finding=status.verdict,
        stalled_s=status.stalled_s,
        step=status.step,
        exit_code=code,
        attached=bool(status.ranks),
        stopped=status.stopped,
        ending=status.ending,
    )
    words = f"run {session.directory.run}: {found.line()}"
    if status.verdict is not None:
        words += f" (exit code {code})"
    return f"{words}; {again}"
