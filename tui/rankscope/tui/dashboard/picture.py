"""What the screens draw from: the newest snapshot, and what is worked out from it once."""

from dataclasses import dataclass
from functools import cached_property

from rankscope.protocol.shapes import Finding, Overview, RankRow, Status
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.words.blame import ABSENT, marks_of
from rankscope.tui.words.marks import Mark

ENDED = ("finished", "failed")


@dataclass(frozen=True)
class Picture:
    """One snapshot. Immutable; everything derived is worked out at most once."""

    snapshot: Snapshot
    title: str = ""
    readonly: bool = True
    ends_run: bool = False
    """The run ends when the dashboard is left, as a demonstration does."""

    @property
    def status(self) -> Status | None:
        return self.snapshot.status

    @property
    def overview(self) -> Overview | None:
        return self.snapshot.overview

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
    def rows(self) -> dict[int, RankRow]:
        return {} if self.status is None else {row.rank: row for row in self.status.ranks}

    @cached_property
    def marks(self) -> dict[int, Mark]:
        return {} if self.status is None else marks_of(self.status)

    def mark(self, rank: int) -> Mark:
        return self.marks.get(rank, ABSENT)

    @cached_property
    def nodes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """(host, its ranks) by lowest rank; ranks never heard of come last, under host ``""``."""
        if self.status is None:
            return ()
        by_host: dict[str, set[int]] = {}
        for node in self.overview.nodes if self.overview is not None else []:
            by_host.setdefault(node.host, set()).update(node.ranks)
        placed = {rank for ranks in by_host.values() for rank in ranks}
        for rank, row in self.rows.items():
            if rank not in placed:
                by_host.setdefault(row.host, set()).add(rank)
        absent = set(range(self.status.world_size)) - placed - self.rows.keys()
        nodes = [(host, tuple(sorted(ranks))) for host, ranks in by_host.items() if ranks]
        nodes.sort(key=lambda node: node[1][0])
        return (*nodes, ("", tuple(sorted(absent)))) if absent else tuple(nodes)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All ranks in the order in which they stand on screen."""
        return tuple(rank for _, ranks in self.nodes for rank in ranks)

    @cached_property
    def worst_rank(self) -> int | None:
        """The first culprit of the gravest finding that names one."""
        return next((each.ranks[0] for each in self.findings if each.ranks), None)
