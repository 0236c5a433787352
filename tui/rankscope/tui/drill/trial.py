"""One fault in one real run: started like any other, watched through its hub, judged, ended."""

import contextlib
import subprocess
import tempfile
import time
from pathlib import Path

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import DrillRow, Finding, Incidents, Injected, Status
from rankscope.tui.drill import judge, scripts, truth
from rankscope.tui.drill.ending import end
from rankscope.tui.drill.plan import Trial
from rankscope.tui.drill.vigil import Vigil
from rankscope.tui.feed.client import HubClient
from rankscope.tui.launcher.child import Child, exit_on_signals
from rankscope.tui.launcher.foreground import LOG_NAME, private_log
from rankscope.tui.launcher.session import Session

POLL_S = 0.1
ANSWER_S = 2.0


def not_run(trial: Trial) -> DrillRow:
    """The row of a fault that cannot be injected here."""
    step = None if trial.fault.whole_run else trial.spec.step
    intended = Injected([trial.spec.rank], step, trial.fault.kinds[0], {})
    return DrillRow(
        fault=str(trial.spec),
        injected=intended,
        found=None,
        latency_s=None,
        exact=False,
        note=trial.why_not,
    )


def run(trial: Trial, wait_s: float) -> DrillRow:
    """Inject the fault and judge what is found within ``wait_s`` of it.

    The run's directory is kept when the verdict is not exact, and the row's note names it.
    """
    if trial.why_not:
        return not_run(trial)
    with tempfile.TemporaryDirectory(prefix="rankscope-drill-") as folder, exit_on_signals():
        told = Path(folder) / "fault.jsonl"
        saves = str(Path(folder) / "checkpoints")
        given = [saves if word == "{folder}" else word for word in trial.command]
        command = [*given, "--fault-log", str(told), *trial.last]
        session = Session.open(command, name=f"drill {trial.spec}")
        exact, keep = False, True
        try:
            row, exact = _watch(session, trial, command, told, wait_s)
            keep = not exact
        except UserError:  # nothing was drilled, and the error says why
            keep = False
            raise
        finally:
            _leave(session, keep=keep)
    if not exact:
        row.note += f"; look with: {session.command('status')}"
    return row


def _watch(
    session: Session, trial: Trial, command: list[str], told: Path, wait_s: float
) -> tuple[DrillRow, bool]:
    vigil = Vigil(trial.fault, time.time(), wait_s, stranger=bool(trial.last))
    log = session.directory.path / LOG_NAME
    with (
        private_log(log) as output,
        HubClient(session.endpoint, session.directory.read_key("viewer")) as hub,
    ):
        child = session.start(
            command,
            output,
            stdin=subprocess.DEVNULL,
            own_group=True,  # Ctrl-C is for the drill, which ends the run
            extra=dict(trial.environ),
        )
        try:
            over = _until_told(session, child, hub, told, vigil)
            criticals = _criticals(hub)
        finally:
            code = end(child)
        final = session.finish(code)
        if over:  # it ended by itself, so its last word counts
            vigil.look(time.time(), truth.read(told), final)
            criticals += _criticals(hub)
    if trial.last:  # a script of the user's own, which may not be what a drill needs
        _check_script(trial, vigil, code if over else None, log)
    return _row(trial, vigil, criticals, code, wait_s)


def _check_script(trial: Trial, vigil: Vigil, code: int | None, log: Path) -> None:
    """Raise :class:`UserError` when the script could not show anything."""
    if vigil.truth is None:
        raise scripts.ended_early(trial, code, vigil.heard, log)
    if not vigil.heard:
        raise scripts.never_attached(trial)


def _until_told(session: Session, child: Child, hub: HubClient, told: Path, vigil: Vigil) -> bool:
    """Until the verdict is in or too late; True when the run ended by itself before."""
    while True:
        session.supervisor.poll(time.monotonic())
        over = child.poll() is not None
        status = None
        with contextlib.suppress(UserError):
            body = hub.ask("status", timeout_s=ANSWER_S).body
            status = body if isinstance(body, Status) else None
        if vigil.look(time.time(), truth.read(told), status):
            return False
        if over:
            return True
        time.sleep(POLL_S)


def _criticals(hub: HubClient) -> list[Finding]:
    """Every critical finding the run has had so far, closed ones too."""
    with contextlib.suppress(UserError):
        body = hub.ask("incidents", timeout_s=ANSWER_S).body
        if isinstance(body, Incidents):
            return [i.finding for i in body.incidents if i.finding.severity == "critical"]
    return []


def _row(
    trial: Trial, vigil: Vigil, criticals: list[Finding], code: int, wait_s: float
) -> tuple[DrillRow, bool]:
    if vigil.truth is None:
        row = not_run(trial)
        row.note = f"the fault did not happen: the run ended before it, with exit code {code}"
        return row, False
    injected = vigil.truth.injected
    reasons = judge.wrong(trial.fault, injected, vigil.found, criticals)
    if vigil.found is None:
        reasons = [f"nothing was found within {wait_s:.0f} s"]
    row = DrillRow(
        fault=str(trial.spec),
        injected=injected,
        found=vigil.found,
        latency_s=vigil.latency_s(),
        exact=not reasons,
        note="; ".join(reasons),
        after_step_s=vigil.after_step_s(),
    )
    return row, row.exact


def _leave(session: Session, keep: bool) -> None:
    """End the hub, and keep what shows how a verdict came to be wrong."""
    if session.child is not None and session.child.poll() is None:
        end(session.child)
    if keep and session.child is not None:
        session.end()
    else:
        session.discard()
