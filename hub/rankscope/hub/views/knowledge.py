"""What every view is made of, and what several of them tell."""

from dataclasses import dataclass, field

import msgspec
import numpy as np

from rankscope.hub import rates
from rankscope.hub.incidents import Incidents
from rankscope.hub.orders import Pending
from rankscope.hub.state import RunState
from rankscope.hub.state.history import StepEntry
from rankscope.hub.views.told import Told
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

HISTORY_STEPS = 120


class NoSuchView(ValueError):
    """There is no view, or no rank, of that name; the text says so in words."""


@dataclass
class Knowledge:
    """All that views are made of."""

    state: RunState
    incidents: Incidents
    findings: list[shapes.Finding]
    """Open ones, with ages as of ``diagnosed_s``."""
    diagnosed_s: float
    note: str = ""
    """What the hub has to say of itself, such as a full disk."""
    pending: str = ""
    """How far an operator's request is, in words; empty when there is none."""
    asked: Pending | None = None
    """The request itself; where there is none, the pause that the ranks are in."""
    standing: bool = False
    """Whether it is that pause."""
    launcher: tuple[int, str] | None = None
    """The process that started the run, and its machine."""
    told: Told = field(default_factory=Told)

    def busy(self) -> str:
        """That there is a request in work, in words; empty when there is none."""
        return "" if self.asked is None or self.standing else self.asked.busy()


def asked_rank(know: Knowledge, request: m.ViewRequest) -> int | None:
    """The argument ``rank``; None when it was left out. Raises :class:`NoSuchView` when there is no
    such rank."""
    rank = request.args.get("rank")
    if rank is None:
        return None
    size = know.state.size()
    if not isinstance(rank, int) or not 0 <= rank < size:
        raise NoSuchView(no_rank(rank, size))
    return rank


def no_rank(rank: object, size: int) -> str:
    """``there is no rank 7; this run has 2 ranks``."""
    if not size:
        return f"there is no rank {rank}: no rank of this run has been heard of"
    return f"there is no rank {rank}; this run has {size} rank{'s' * (size > 1)}"


def run_step(state: RunState) -> int:
    """The last step completed by every rank that was heard of."""
    return state.complete_step()


def aged(know: Knowledge, now_s: float) -> list[shapes.Finding]:
    """The findings with their ages as of now."""
    gone_s = now_s - know.diagnosed_s
    return [
        msgspec.structs.replace(finding, since_s=max(0.0, finding.since_s + gone_s))
        for finding in know.findings
    ]


def completed(state: RunState, step: int) -> list[tuple[int, StepEntry]]:
    """The newest steps not beyond ``step``, oldest first."""
    return state.history.completed(step, HISTORY_STEPS)


def grad_norm(state: RunState, steps: rates.Steps) -> float | None:
    """The global norm of the newest step in which all of it is known."""
    for _, entry in reversed(steps):
        norm = entry.global_grad_norm(state.world_size)
        if norm is not None:
            return norm
    return None


def overhead_s(state: RunState) -> float | None:
    """The agents' own time on the training thread, a step: the mean over ranks."""
    known = state.ranks.overhead_s[~np.isnan(state.ranks.overhead_s)]
    return float(known.mean()) if known.size else None


def or_none(value: float) -> float | None:
    """Columns say NaN where nothing is known."""
    return None if value != value else value
