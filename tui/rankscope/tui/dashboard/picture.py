"""What the screens draw from: the newest snapshot, and what is worked out from it once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rankscope.protocol.pasting import named
from rankscope.protocol.shapes import CheckpointsView, Finding, Overview, RankRow, Status
from rankscope.tui.dashboard.standing import ByRank, Nodes, Stand, stand_of
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.words.blame import ABSENT, BLAMED, faded
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
    silent: bool = False
    """The hub has a question for longer than an answer takes, and is not given up yet."""
    memory: Memory = field(default_factory=Memory, compare=False, repr=False)

    @property
    def status(self) -> Status | None:
        return self.snapshot.status

    @property
    def overview(self) -> Overview | None:
        return self.snapshot.overview

    def command(self, text: str) -> str:
        """``text``, a command of ours, as it means this run in another terminal."""
        return named(text, self.snapshot.run_words)

    @property
    def possible(self) -> Mapping[str, str]:
        """For each command why it would be refused now; empty where nobody has said."""
        view = self.snapshot.view
        if isinstance(view, CheckpointsView):
            return view.possible
        return {} if self.overview is None else self.overview.possible

    @property
    def stands_still(self) -> bool:
        """It is of the past, or frozen: nothing in it grows older, and it commands nothing."""
        return self.snapshot.past is not None or self.frozen_t_s is not None

    @property
    def unknown(self) -> bool:
        """No hub is there to say how the run is now: all that is shown was true when one said so
        last. Never of a run that has ended, nor of a picture that is meant to stand still."""
        if self.status is None or self.ended or self.stands_still:
            return False
        return self.silent or self.snapshot.link == "away" or self.snapshot.replay

    @property
    def no_hub(self) -> bool:
        """There is none to be reached; one that is there and silent, stopped say, is another
        matter."""
        away = self.snapshot.link == "away" and not self.snapshot.silent
        return away or self.snapshot.replay

    @property
    def ended(self) -> bool:
        return self.status is not None and self.status.state in ENDED

    @property
    def leaving_ends_run(self) -> bool:
        return self.ends_run and not self.ended

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
    def _marks(self) -> list[Mark]:
        """By place in the rows."""
        if self.stand is None:
            return []
        if not self.unknown:
            return self.stand.marks
        return [
            faded(row, mark) for row, mark in zip(self.stand.came, self.stand.marks, strict=True)
        ]

    @cached_property
    def marks(self) -> Mapping[int, Mark]:
        """Of those that were heard of; :meth:`mark` knows the others, too."""
        return {} if self.stand is None else ByRank(self.stand.places, self._marks)

    def mark(self, rank: int) -> Mark:
        known = self.marks.get(rank)
        if known is not None:
            return known
        blamed = self.stand is not None and rank in self.stand.blame.critical
        return BLAMED if blamed and not self.unknown else ABSENT

    def marks_of(self, ranks: Sequence[int]) -> list[Mark]:
        """The marks of many ranks."""
        stand = self.stand
        if stand is None or stand.places is not None or (ranks and max(ranks) >= len(stand.came)):
            return [self.mark(rank) for rank in ranks]
        return [self._marks[rank] for rank in ranks]

    @cached_property
    def tally(self) -> Counter[Mark]:
        """How many ranks have each mark."""
        if self.stand is None:
            return Counter()
        return Counter(map(self.mark, self.order)) if self.unknown else self.stand.tally

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
