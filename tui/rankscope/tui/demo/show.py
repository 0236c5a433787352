"""Running a demonstration, on the dashboard or in lines."""

import subprocess
import threading
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import Overview, Status
from rankscope.tui.demo.plan import Plan
from rankscope.tui.demo.progress import document, in_demo_words, progress_line, summary_line
from rankscope.tui.demo.watch import Watch
from rankscope.tui.feed.merge import ENDED_STATES
from rankscope.tui.launcher.child import exit_on_signals
from rankscope.tui.launcher.foreground import LOG_NAME, last_words, private_log
from rankscope.tui.launcher.session import Session, say
from rankscope.tui.text.output import complain
from rankscope.tui.view import on_terminal, show
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

ENDS_WITHIN_S = 20.0
"""How long a demonstration that was quit may take to end by itself."""
LAST_LINES = 5
MAX_LOG_BYTES = 256 * 1024


def show_demo(plan: Plan, *, headless: bool, json: bool) -> int:
    """Run ``plan``; the exit code of its training command."""
    on_screen = not headless and on_terminal()
    if on_screen and find_spec("textual") is None:
        say("the dashboard needs textual (pip install 'rankscope[tui]'); showing lines instead")
        on_screen = False
    session = Session.open(plan.command, name=f"demo-{plan.trainer}")
    log = session.directory.path / LOG_NAME
    with private_log(log) as output:
        if on_screen:
            return _on_screen(session, plan, output, log)
        return _in_lines(session, plan, output, log, json)


def _in_lines(session: Session, plan: Plan, output: IO[bytes], log: Path, json: bool) -> int:
    began_s = time.monotonic()

    def show_line(overview: Overview) -> None:
        # Until a rank was heard of there is nothing to tell; the end is told by the summary.
        here = any(node.ranks for node in overview.nodes)  # a sentinel may be there before them
        if here and overview.state not in ENDED_STATES:
            say(progress_line(overview, plan.steps))

    with closing(Watch(session, show_line)) as watch:
        code = session.run(
            plan.command, output, stdin=subprocess.DEVNULL, extra=plan.environ, each=watch.tick
        )
        _refuse_as_the_trainer_did(session, plan, code, log)
        status = session.finish(code)
        watch.look()
    if code != Exit.FINE:
        _say_why(log, known=status is not None and status.verdict is not None)
    if status is None:
        say(last_words(session, code, None))
        return code or Exit.UNREACHABLE
    took_s = time.monotonic() - began_s
    say(summary_line(status, watch.losses, took_s))
    if json:
        print(jsontext.dumps(document(status, watch.losses)))
    return code


def _on_screen(session: Session, plan: Plan, output: IO[bytes], log: Path) -> int:
    """The dashboard until it is quit, which ends a training that is still going."""
    with exit_on_signals():
        child = session.start(plan.command, output, stdin=subprocess.DEVNULL, extra=plan.environ)
        over = threading.Event()
        supervisor = session.wait_in_thread(over)
        try:
            left = show(session.directory, title=session.name, readonly=False, ends_run=True)
        finally:
            over.set()
            supervisor.join()
            was_running = child.poll() is None
            if was_running:
                say("ending the demo's training …")
            code = child.end(ENDS_WITHIN_S) if was_running else child.poll() or 0
    if not was_running:
        _refuse_as_the_trainer_did(session, plan, code, log)
    status = session.finish(code)
    if not was_running and code != Exit.FINE:
        _say_why(log, known=status is not None and status.verdict is not None)
    by_user = was_running and left in (Exit.FINE, Exit.INTERRUPTED)
    say(ended_by_user(session, status) if by_user else last_words(session, code, status))
    if left:
        return left
    return Exit.FINE if was_running else code


def ended_by_user(session: Session, status: Status | None) -> str:
    """The last word on a demonstration that was quit: that is no failure."""
    at = "" if status is None else f" at step {numbers.count(status.step)}"
    return f"demo ended by you{at}; look again with: rankscope status {session.directory.run}"


def _refuse_as_the_trainer_did(session: Session, plan: Plan, code: int, log: Path) -> None:
    """Raise what the trainer said when it refused its settings, such as a text it cannot use.

    Nothing was trained then, so nothing is kept.
    """
    if code == Exit.FINE:
        return
    start = f"rankscope.trainers.{plan.trainer}: "
    for line in _log_lines(log):
        if line.startswith(start):
            session.discard()
            raise UserError(in_demo_words(safe(line.removeprefix(start))))


def _say_why(log: Path, known: bool) -> None:
    """The last lines of what failed, unless a verdict has ``known`` better; and where all is."""
    if not known:
        for line in _log_lines(log)[-LAST_LINES:]:
            complain(safe(line))
    say(f"training failed; all it said is in {log}")


def _log_lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_LOG_BYTES))
        text = file.read().decode("utf-8", "replace")
    return [line for line in text.splitlines() if line.strip()]
