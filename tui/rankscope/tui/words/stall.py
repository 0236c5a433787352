"""A run in which nothing moves and nothing explains it: where each rank stands, what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.protocol.shapes import RankRow, Status
from rankscope.tui.words import numbers


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
        return f"{who} in {self.phase} for {most}{numbers.age(self.for_s)}"


def unexplained(status: Status) -> bool:
    """Whether the run stands still and no finding says why."""
    explained = status.verdict is not None and status.verdict.severity != "info"
    return status.state == "stalled" and not explained


def standings(rows: Sequence[RankRow]) -> list[Standing]:
    """The living ranks by phase: the phase with the fewest ranks first, then the longest."""
    by_phase: dict[str, list[RankRow]] = {}
    for row in rows:
        if row.phase != "ended" and row.process != "ended":
            by_phase.setdefault(row.phase, []).append(row)
    found = [
        Standing(
            phase,
            tuple(row.rank for row in same),
            max((row.phase_s for row in same if row.phase_s is not None), default=None),
        )
        for phase, same in by_phase.items()
    ]
    return sorted(found, key=lambda each: (len(each.ranks), -(each.for_s or 0.0), each.ranks))


def odd_one(rows: Sequence[RankRow]) -> RankRow | None:
    """The rank to look at first: of the rarest phase the one that is in it longest."""
    found = standings(rows)
    if not found:
        return None
    among = [row for row in rows if row.rank in found[0].ranks]
    return max(among, key=lambda row: (row.phase_s or 0.0, -row.rank))


def next_step(rows: Sequence[RankRow]) -> str:
    """What to type, and where; empty when no process is known."""
    odd = odd_one(rows)
    if odd is None or odd.pid is None:
        return ""
    where = f" on {odd.host}" if odd.host else ""
    return f"see where rank {odd.rank} is: py-spy dump --pid {odd.pid}{where}"
