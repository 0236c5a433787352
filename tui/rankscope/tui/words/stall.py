"""A run in which nothing moves and nothing explains it: where each rank stands, what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.protocol.shapes import RankRow, Status
from rankscope.tui.feed.merge import phase_ages
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import suspicion
from rankscope.tui.words.phases import in_phase


@dataclass(frozen=True)
class Standing:
    """The ranks that are in one phase."""

    phase: str
    ranks: tuple[int, ...]
    for_s: float | None
    """The longest that any of them has been in it."""

    @property
    def text(self) -> str:
        """``rank 1 in data for 42 s``; of several the one that is in it longest counts."""
        most = "up to " if len(self.ranks) > 1 else ""
        who = numbers.ranks(list(self.ranks))
        return f"{who} {in_phase(self.phase)} for {most}{numbers.age(self.for_s)}"


def unexplained(status: Status) -> bool:
    """Whether the run stands still and no finding says why."""
    explained = status.verdict is not None and status.verdict.severity != "info"
    return status.state == "stalled" and not explained


_known: tuple[Sequence[RankRow], list[Standing], RankRow | None] | None = None
"""Of the rows asked about last, known by identity: one picture asks several times, and of
thousands of ranks that takes long."""


def standings(rows: Sequence[RankRow]) -> list[Standing]:
    """The living ranks by phase: the phase with the fewest ranks first, then the longest."""
    return _worked_out(rows)[0]


def odd_one(rows: Sequence[RankRow]) -> RankRow | None:
    """The rank to look at first: of the rarest phase the one that is in it longest."""
    return _worked_out(rows)[1]


def _worked_out(rows: Sequence[RankRow]) -> tuple[list[Standing], RankRow | None]:
    global _known
    known = _known
    if known is None or known[0] is not rows:
        known = _known = (rows, *_work_out(rows))
    return known[1], known[2]


def _work_out(rows: Sequence[RankRow]) -> tuple[list[Standing], RankRow | None]:
    by_phase: dict[str, list[tuple[RankRow, float | None]]] = {}
    for row, phase_s in phase_ages(rows):
        if row.phase != "ended" and row.process != "ended":
            by_phase.setdefault(row.phase, []).append((row, phase_s))
    found = [
        Standing(
            phase,
            tuple(row.rank for row, _ in same),
            max((phase_s for _, phase_s in same if phase_s is not None), default=None),
        )
        for phase, same in by_phase.items()
    ]
    found.sort(key=lambda each: (len(each.ranks), -(each.for_s or 0.0), each.ranks))
    if not found:
        return [], None
    odd = max(by_phase[found[0].phase], key=lambda item: (item[1] or 0.0, -item[0].rank))
    return found, odd[0]


def advised(status: Status) -> str:
    """What to do about a stall that nothing explains: what a suspicion asks for, if any."""
    suspected = suspicion(status.state, status.verdict)
    return next_step(status.ranks) if suspected is None else suspected.next


def next_step(rows: Sequence[RankRow]) -> str:
    """What to type, and where; empty when no process is known."""
    odd = odd_one(rows)
    if odd is None or odd.pid is None:
        return ""
    where = f" on {odd.host}" if odd.host else ""
    return f"see where rank {odd.rank} is: py-spy dump --pid {odd.pid}{where}"
