"""Which faults a drill injects and how each run is started, checked before any is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rankscope.protocol import faults
from rankscope.protocol.exits import UserError
from rankscope.protocol.faults import Fault, Spec
from rankscope.protocol.faulttable import FAULTS
from rankscope.tui.demo.plan import plan as plan_training

At = Literal["first", "middle", "last", "all"]
Attach = Literal["full", "plain"]
AT: tuple[str, ...] = get_args(At)
ATTACH: tuple[str, ...] = get_args(Attach)

STEP = 12
"""The step in which faults happen unless told otherwise: the run has a pace of its own by then."""

STEPS = 1_000_000
"""More than a run can do: the drill ends it."""


@dataclass(frozen=True)
class Setting:
    """How the runs of a drill are started."""

    trainer: str = "ddp"
    ranks: int = 2
    attach: str = "full"
    script: Path | None = None
    """A training script of the user's own, instead of a trainer."""
    arguments: tuple[str, ...] = ()
    """The script's."""

    @property
    def trains(self) -> str:
        """What trains, in a word; rows of other ones are no rows of this drill."""
        if self.script is None:
            return self.trainer
        return " ".join((str(self.script.absolute()), *self.arguments))


@dataclass(frozen=True)
class Trial:
    """One fault to be injected into one run; ``why_not`` when this version or setting cannot."""

    spec: Spec
    fault: Fault
    command: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    why_not: str = ""
    last: tuple[str, ...] = ()
    """What comes last in the command: a script of the user's own and its arguments."""


def plan(wanted: Sequence[str], at: str, setting: Setting) -> list[Trial]:
    """The trials for the faults ``wanted`` (names, or with rank and step); none means all.

    Raises :class:`UserError` for a fault, rank, step or setting there is not.
    """
    training = plan_training(setting.trainer, setting.ranks, STEPS, None)
    if setting.attach not in ATTACH:
        raise UserError(f"--attach {setting.attach}: there are {' and '.join(ATTACH)}")
    trials = []
    for spec, fault in specs(wanted or [fault.name for fault in FAULTS], at, setting.ranks):
        why_not = _why_not(fault, setting.ranks)
        if not why_not:
            faults.check(spec, fault, setting.ranks, STEPS)
        elif wanted and not fault.missing:
            raise UserError(f"fault {spec}: {why_not}")
        trials.append(
            Trial(
                spec,
                fault,
                (*training.command, *_options(spec, fault, setting)),
                tuple(training.environ.items()),
                why_not,
            )
        )
    return trials


def specs(wanted: Sequence[str], at: str, ranks: int) -> Iterator[tuple[Spec, Fault]]:
    """Each fault that ``wanted`` names, on the ranks that it or ``at`` means."""
    if at not in AT:
        raise UserError(f"--at {at}: there are {', '.join(AT)}")
    for text in wanted:
        fault = faults.find(text.partition("@")[0], FAULTS)
        if "@" in text:
            yield faults.parse(text, FAULTS), fault
            continue
        for rank in ranks_at(at, ranks):
            yield Spec(fault.name, rank, 1 if fault.whole_run else STEP), fault


def ranks_at(at: str, ranks: int) -> list[int]:
    """The ranks that ``--at`` means, each once."""
    places = {"first": 0, "middle": ranks // 2, "last": ranks - 1}
    return sorted(set(places.values())) if at == "all" else [places[at]]


def _why_not(fault: Fault, ranks: int) -> str:
    if fault.missing:
        return f"needs {fault.missing}, not available in this version"
    if ranks < fault.least_ranks:
        return f"takes at least {fault.least_ranks} ranks"
    return ""


def _options(spec: Spec, fault: Fault, setting: Setting) -> Iterator[str]:
    yield from ("--text-bytes", "400000", "--log-every", str(STEPS))
    yield from ("--attach", setting.attach)
    options = fault.options + (fault.fsdp2_options if setting.trainer == "fsdp2" else ())
    # The folder is the trial's own, and known when that begins.
    known = {"{step}": str(spec.step), "{ranks}": str(setting.ranks)}
    yield from (known.get(option, option) for option in options)
    yield from ("--fault", str(spec))
