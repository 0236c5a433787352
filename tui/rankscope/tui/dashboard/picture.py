"""What the screens draw from: the newest snapshot, and what is worked out from it once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rankscope.protocol.shapes import Finding, Overview, RankRow, Status
from rankscope.tui.dashboard.standing import ByRank, Nodes, Stand, stand_of
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.words.blame import ABSENT, BLAMED
from rankscope.tui.words.marks import Mark

ENDED = ("finished", "failed")


class Memory:
    """The newest :class:`Stand`, passed on from picture to picture."""

    def __init__(self) -> None:
        self.stand: Stand | None = None


@dataclass(frozen=True)
class Picture:
    """One snapshot. Immutable; everything derived is worked out at most once."""

    snapshot: Snapshot
    title: str = ""
    readonly: bool = True
    ends_run: bool = False
    """The run ends when the dashboard is left, as a demonstration does."""
    frozen_t_s: float | None = None
    """When this picture was frozen (local monotonic clock); None while it is replaced by newer
    ones."""
    opening: bool = False
    """One has gone back in time, and the recording is still being read: nothing newer is asked."""
    memory: Memory = field(default_factory=Memory, compare=False, repr=False)

    @property
    def status(self) -> Status | None:
        return self.snapshot.status

    @property
    def overview(self) -> Overview | None:
        return self.snapshot.overview

    @property
    def stands_still(self) -> bool:
        """It is of the past, or frozen: nothing in it grows older, and it commands nothing."""
        return self.snapshot.past is not None or self.frozen_t_s is not None

    @property
    def ended(self) -> bool:
        return self.status is not None and self.status.state in ENDED

    @property
    def verdict(self) -> Finding | None:
        return None if self.status is None else self.status.verdict

    @cached_property
    def news(self) -> tuple[object, ...]:
        """What is worth drawing at once when it changes: link, state, findings, a page's coming."""
        status = self.status
        return (
            self.snapshot.link,
            None
            if self.snapshot.past is None
            else (self.snapshot.past.at_s, self.snapshot.past.speed),
            None if self.snapshot.rank is None else self.snapshot.rank.row.rank,
            None if status is None else status.state,
            tuple((each.kind, tuple(each.ranks)) for each in self.findings),
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The open findings, the verdict first."""
        if self.status is None:
            return ()
        verdict, findings = self.status.verdict, self.status.findings
        if verdict is None:
            return tuple(findings)
        return (verdict, *(each for each in findings if each != verdict))

    @cached_property
    def stand(self) -> Stand | None:
        """What is known of all ranks together; None until the first answer."""
        if self.status is None:
            return None
        self.memory.stand = stand_of(self.status, self.overview, self.memory.stand)
        return self.memory.stand

    @cached_property
    def rows(self) -> Mapping[int, RankRow]:
        """By rank, their ages as of the snapshot."""
        if self.status is None or self.stand is None:
            return {}
        return ByRank(self.stand.places, self.status.ranks)

    @cached_property
    def marks(self) -> Mapping[int, Mark]:
        """Of those that were heard of; :meth:`mark` knows the others, too."""
        return {} if self.stand is None else ByRank(self.stand.places, self.stand.marks)

    def mark(self, rank: int) -> Mark:
        known = self.marks.get(rank)
        if known is not None:
            return known
        return BLAMED if self.stand is not None and rank in self.stand.blame.critical else ABSENT

    def marks_of(self, ranks: Sequence[int]) -> list[Mark]:
        """The marks of many ranks."""
        stand = self.stand
        if stand is None or stand.places is not None or (ranks and max(ranks) >= len(stand.came)):
            return [self.mark(rank) for rank in ranks]
        return [stand.marks[rank] for rank in ranks]

    @property
    def tally(self) -> Counter[Mark]:
        """How many ranks have each mark."""
        return Counter() if self.stand is None else self.stand.tally

    @property
    def nodes(self) -> Nodes:
        """(host, its ranks) by lowest rank; ranks never heard of come last, under host ``""``."""
        return () if self.stand is None else self.stand.nodes

    @property
    def order(self) -> tuple[int, ...]:
        """All ranks in the order in which they stand on screen."""
        return () if self.stand is None else self.stand.order

    @cached_property
    def highest_rank(self) -> int:
        """Of all that stand on screen; 0 where there are none."""
        return max(self.order, default=0)

    @cached_property
    def longest_host(self) -> int:
        """Characters of the longest name of a node."""
        return max((len(host) for host, _ in self.nodes), default=0)

    @property
    def node_count(self) -> int:
        """How many machines the run is on, as far as that is known."""
        if self.overview is None:
            return 0
        short = self.overview.nodes_in_short
        return len(self.overview.nodes) if short is None else short.count

    @cached_property
    def worst_rank(self) -> int | None:
        """The first culprit of the gravest finding that names one."""
        return next((each.ranks[0] for each in self.findings if each.ranks), None)
