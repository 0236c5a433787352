"""Drills of a training script of the user's own: which faults, how it is started, what to say."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rankscope.protocol import faults, faulttable
from rankscope.protocol.exits import UserError
from rankscope.protocol.faults import Fault, Spec
from rankscope.tui.demo.plan import check_ranks, torchrun
from rankscope.tui.drill.plan import STEPS, Setting, Trial, specs
from rankscope.tui.drill.vigil import START_S

MODULE = "rankscope.trainers.faults.script"
PHASES = ("data", "forward", "backward", "optimizer")
LAST_LINE_CHARS = 160


def plan_script(wanted: Sequence[str], at: str, setting: Setting) -> list[Trial]:
    """The trials for the faults ``wanted`` in the user's script; none means all that can be.

    Raises :class:`UserError` for a script, fault, rank or step there is not.
    """
    script = setting.script
    assert script is not None
    check_ranks(setting.ranks)
    check_script(script)
    trials = []
    for spec, fault in specs(wanted or faulttable.IN_SCRIPTS, at, setting.ranks):
        if spec.name not in faulttable.IN_SCRIPTS:
            raise UserError(
                f"fault {spec}: it needs the help of rankscope's own trainers; with --script "
                f"there are {', '.join(faulttable.IN_SCRIPTS)}"
            )
        least = setting.ranks < fault.least_ranks
        if least and wanted:
            raise UserError(f"fault {spec}: it takes at least {fault.least_ranks} ranks")
        if not least:
            faults.check(spec, fault, setting.ranks, STEPS)
        check_where(spec, fault)
        started = torchrun(setting.ranks, MODULE, "--fault", str(spec))
        trials.append(
            Trial(
                spec,
                fault,
                started,
                environ=(("OMP_NUM_THREADS", "1"), ("PYTHONUNBUFFERED", "1")),
                why_not=f"takes at least {fault.least_ranks} ranks" if least else "",
                last=(str(script.absolute()), *setting.arguments),
            )
        )
    return trials


def check_script(script: Path) -> None:
    """Raise :class:`UserError` when there is nothing to start."""
    if not script.exists():
        raise UserError(f"--script {script}: no such file")
    if not script.is_file():
        raise UserError(f"--script {script}: it is no file; name a training script in Python")
    if find_spec("torch") is None:
        raise UserError("drill --script needs torch: pip install 'rankscope[torch]'")


def check_where(spec: Spec, fault: Fault) -> None:
    """Raise :class:`UserError` when the fault's third part means nothing."""
    if not spec.where:
        return
    if fault.argument == faulttable.PHASE and spec.where not in PHASES:
        raise UserError(f"fault {spec}: {spec.where!r} is no {fault.argument}")
    if fault.argument == faulttable.VARIABLE and spec.where.find("=") < 1:
        raise UserError(f"fault {spec}: write the variable as {fault.argument}")


def ended_early(trial: Trial, code: int | None, heard: bool, log: Path) -> UserError:
    """What to say of a script that never had its fault; ``code`` None: it went on without."""
    script = Path(trial.last[0]).name
    if code is None:
        return UserError(
            f"{script} did not come to the {trial.spec.where or 'forward'} of step "
            f"{trial.spec.step} within {START_S:.0f} s: choose an earlier step, such as "
            f"{trial.spec.name}@{trial.spec.rank}:2"
        )
    if code:
        last = last_line(log)
        return UserError(
            f"{script} ended with exit code {code} before step {trial.spec.step}"
            + (f": {last}" if last else "")
        )
    if not heard:
        return never_attached(trial)
    return UserError(
        f"{script} was over before step {trial.spec.step}: let it train longer, or choose an "
        f"earlier step, such as {trial.spec.name}@{trial.spec.rank}:2"
    )


def never_attached(trial: Trial) -> UserError:
    """What to say when no rank ever spoke to the hub."""
    return UserError(
        f"{Path(trial.last[0]).name} never attached: call rankscope.agent.attach(model, optimizer) "
        "before its training loop"
    )


def last_line(log: Path) -> str:
    """The line of the output that names the first error; empty when there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    # torch puts the rank before each line of a traceback.
    said = [line.partition("]:")[2] if line.startswith("[rank") else line for line in lines]
    return next((line.strip()[:LAST_LINE_CHARS] for line in said if _names_an_error(line)), "")


def _names_an_error(line: str) -> bool:
    """``ValueError: …``, as a traceback ends."""
    name = line.strip().partition(":")[0]
    return name.replace(".", "").isidentifier() and name.endswith(("Error", "Exit", "Exception"))
