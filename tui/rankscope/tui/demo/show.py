"""Running a demonstration, on the dashboard or in lines."""

import subprocess
import threading
import time
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from rankscope.protocol import jsontext, rundir
from rankscope.protocol.checkpoints import find
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import Overview, Status
from rankscope.tui.asking import author
from rankscope.tui.demo.plan import Plan
from rankscope.tui.demo.progress import document, in_demo_words, progress_line, summary_line
from rankscope.tui.demo.watch import Watch
from rankscope.tui.feed.client import HubClient
from rankscope.tui.feed.merge import ENDED_STATES
from rankscope.tui.launcher.child import ASK, Child, Signals
from rankscope.tui.launcher.foreground import LOG_NAME, last_words, private_log
from rankscope.tui.launcher.session import POLL_S, Session, say
from rankscope.tui.text.output import complain
from rankscope.tui.view import on_terminal, show
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

ENDS_WITHIN_S = 20.0
"""How long a demonstration that was quit may take to end by itself."""
STOPS_WITHIN_S = 6.0
"""So much of it for all ranks to end the same step."""
ANSWERS_WITHIN_S = 1.0
LAST_LINES = 5
MAX_LOG_BYTES = 256 * 1024
SAVED = "checkpoints"
"""In the run's own directory: what an operator has saved is there for as long as the run is."""


def show_demo(plan: Plan, *, headless: bool, json: bool) -> int:
    """Run ``plan``; the exit code of its training command."""
    on_screen = not headless and on_terminal()
    if on_screen and find_spec("textual") is None:
        say("the dashboard needs textual (pip install 'rankscope[tui]'); showing lines instead")
        on_screen = False
    run = rundir.new_run_id(time.time())
    plan = saving(plan, rundir.runs_home() / run / SAVED)
    with Signals() as signals:
        session = Session.open(plan.command, name=f"demo-{plan.trainer}", run_id=run)
        log = session.directory.path / LOG_NAME
        with private_log(log) as output:
            if on_screen:
                return _on_screen(session, signals, plan, output, log)
            return _in_lines(session, signals, plan, output, log, json)


def saving(plan: Plan, directory: Path) -> Plan:
    """``plan`` with a checkpointer that saves to ``directory`` when an operator asks for it."""
    return replace(plan, command=(*plan.command, "--checkpoint-dir", str(directory)))


def _in_lines(
    session: Session, signals: Signals, plan: Plan, output: IO[bytes], log: Path, json: bool
) -> int:
    began_s = time.monotonic()

    def show_line(overview: Overview) -> None:
        # Until a rank was heard of there is nothing to tell; the end is told by the summary.
        here = any(node.ranks for node in overview.nodes)  # a sentinel may be there before them
        if here and overview.state not in ENDED_STATES:
            say(progress_line(overview, plan.steps))

    with closing(Watch(session, show_line)) as watch:
        session.start(
            plan.command, output, stdin=subprocess.DEVNULL, extra=plan.environ, signals=signals
        )
        code = session.wait(signals, each=watch.tick)
        _refuse_as_the_trainer_did(session, plan, code, log)
        status = session.finish(code)
        watch.look()
    if code != Exit.FINE:
        _say_why(log, known=status is not None and status.verdict is not None)
    if status is None:
        say(last_words(session, code, None))
        return code or Exit.UNREACHABLE
    took_s = time.monotonic() - began_s
    _say_saved(session)
    say(summary_line(status, watch.losses, took_s))
    if json:
        print(jsontext.dumps(document(status, watch.losses)))
    return code


def _on_screen(session: Session, signals: Signals, plan: Plan, output: IO[bytes], log: Path) -> int:
    """The dashboard until it is quit, which ends a training that is still going."""
    child = session.start(
        plan.command, output, stdin=subprocess.DEVNULL, extra=plan.environ, signals=signals
    )
    over = threading.Event()
    supervisor = session.wait_in_thread(over)

    def at_last(left: int) -> int:
        """The terminal reads nothing: end it without a word."""
        over.set()
        supervisor.join()
        code = session.end_command(ENDS_WITHIN_S)
        session.finish(code)
        return left or code

    left = None
    try:
        # The dashboard heeds signals by itself; one that came before it ends the demo, too.
        came = signals.take(ASK)
        left = (
            128 + came[0]
            if came
            else show(
                session.directory,
                title=session.name,
                readonly=False,
                ends_run=True,
                at_last=at_last,
            )
        )
    finally:
        over.set()
        supervisor.join()
        was_running = child.poll() is None
        if was_running:
            say("ending the demo's training …")
        if was_running and left == Exit.FINE:
            _stop_in_order(session, child, signals)
        here = child.poll() is None
        code = session.end_command(ENDS_WITHIN_S, signals) if here else child.poll() or 0
    if not was_running:
        _refuse_as_the_trainer_did(session, plan, code, log)
    status = session.finish(code)
    if not was_running and code != Exit.FINE:
        _say_why(log, known=status is not None and status.verdict is not None)
    _say_saved(session)
    by_user = was_running and left in (Exit.FINE, Exit.INTERRUPTED)
    say(ended_by_user(session, status) if by_user else last_words(session, code, status))
    if left:
        return left
    return Exit.FINE if was_running else code


def _stop_in_order(session: Session, child: Child, signals: Signals) -> None:
    """Have the ranks end their loop, as ``S`` does: what was quit is stopped, and not interrupted.
    Not for long: ranks that hang, or have not begun, cannot."""
    try:
        with HubClient(session.endpoint, session.directory.read_key("operator")) as client:
            if not client.command("stop", author=author(), timeout_s=ANSWERS_WITHIN_S).accepted:
                return
    except UserError:
        return
    deadline_s = time.monotonic() + STOPS_WITHIN_S
    while child.poll() is None and not signals and time.monotonic() < deadline_s:
        signals.wait(POLL_S)


def ended_by_user(session: Session, status: Status | None) -> str:
    """The last word on a demonstration that was quit: that is no failure."""
    at = "" if status is None else f" at step {numbers.count(status.step)}"
    return f"demo ended by you{at}; look again with: {session.command('status')}"


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


def _say_saved(session: Session) -> None:
    """Where what was saved is."""
    saved = session.directory.path / SAVED
    if find(saved)[0]:
        say(f"checkpoints are in {saved}")


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
