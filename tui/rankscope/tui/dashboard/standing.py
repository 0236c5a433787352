"""What is worked out from all ranks together, from one snapshot to the next.

Of 16,384 ranks a few hundred change between two snapshots: whatever is kept for each rank is
worked out anew for those alone. Rows are compared by identity, so it does not matter how many
snapshots were passed over.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Generic, TypeVar

from rankscope.protocol.shapes import Overview, RankRow, Status
from rankscope.tui.feed.merge import as_came
from rankscope.tui.words.blame import ABSENT, BLAMED, Blame, blame_of, mark_of
from rankscope.tui.words.marks import Mark

Item = TypeVar("Item")

Nodes = tuple[tuple[str, tuple[int, ...]], ...]
"""(host, its ranks) by lowest rank; ranks never heard of come last, under host ``""``."""

_rank_of = attrgetter("rank")


class ByRank(Mapping[int, Item], Generic[Item]):
    """A list of something for each rank, read by rank."""

    def __init__(self, places: Mapping[int, int] | None, items: Sequence[Item]) -> None:
        self._places = places
        self._items = items

    def __getitem__(self, rank: int) -> Item:
        if self._places is not None:
            return self._items[self._places[rank]]
        if not 0 <= rank < len(self._items):
            raise KeyError(rank)
        return self._items[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._items)) if self._places is None else self._places)

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True)
class Stand:
    """All that is known of the ranks of one snapshot together."""

    came: Sequence[RankRow]
    """By rank; ages as of when each came."""
    places: Mapping[int, int] | None
    """Rank to its place in ``came``; None where these are the same."""
    blame: Blame
    marks: list[Mark]
    """By place."""
    tally: Counter[Mark]
    """How many ranks have each mark, those that are not here among them."""
    nodes: Nodes
    order: tuple[int, ...]
    """All ranks as they stand on screen."""
    placed: tuple[object, ...]
    """What ``nodes`` was made from, beside the rows."""


def stand_of(status: Status, overview: Overview | None, before: Stand | None) -> Stand:
    """What is known of the ranks; from ``before``, of any earlier snapshot, where that holds."""
    came = as_came(status.ranks)
    blame = blame_of(status)
    placed = (status.world_size, _placed(overview))
    if before is None or len(before.came) != len(came):
        return _anew(came, blame, status, overview, placed)
    changed = list(compress(count(), map(is_not, came, before.came)))
    if len(changed) > len(came) // 2 or blame != before.blame:
        return _anew(came, blame, status, overview, placed)
    marks, tally = list(before.marks), before.tally.copy()
    moved = placed != before.placed
    for at in changed:
        row, old = came[at], before.came[at]
        if row.rank != old.rank:
            return _anew(came, blame, status, overview, placed)
        moved = moved or row.host != old.host
        mark = mark_of(row, blame)
        if mark is not marks[at]:
            tally[marks[at]] -= 1
            tally[mark] += 1
            marks[at] = mark
    nodes, order = before.nodes, before.order
    if moved:
        nodes = _nodes(came, status.world_size, overview)
        order = _in_order(nodes)
    return Stand(came, before.places, blame, marks, +tally, nodes, order, placed)


def _anew(
    came: Sequence[RankRow],
    blame: Blame,
    status: Status,
    overview: Overview | None,
    placed: tuple[object, ...],
) -> Stand:
    marks = [mark_of(row, blame) for row in came]
    ranks = list(map(_rank_of, came))
    places = None if ranks == list(range(len(came))) else {r: at for at, r in enumerate(ranks)}
    nodes = _nodes(came, status.world_size, overview)
    order = _in_order(nodes)
    tally = Counter(marks)
    if len(order) > len(came):
        here = set(ranks)
        tally.update(BLAMED if r in blame.critical else ABSENT for r in order if r not in here)
    return Stand(came, places, blame, marks, tally, nodes, order, placed)


def _placed(overview: Overview | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    nodes = [] if overview is None else overview.nodes
    return tuple((node.host, tuple(node.ranks)) for node in nodes)


def _nodes(came: Sequence[RankRow], world_size: int, overview: Overview | None) -> Nodes:
    by_host: dict[str, set[int]] = {}
    for node in overview.nodes if overview is not None else []:
        by_host.setdefault(node.host, set()).update(node.ranks)
    placed = {rank for ranks in by_host.values() for rank in ranks}
    for row in came:
        if row.rank not in placed:
            by_host.setdefault(row.host, set()).add(row.rank)
    absent = set(range(world_size)) - placed
    absent -= set(map(_rank_of, came))
    nodes = [(host, tuple(sorted(ranks))) for host, ranks in by_host.items() if ranks]
    nodes.sort(key=lambda node: node[1][0])
    return (*nodes, ("", tuple(sorted(absent)))) if absent else tuple(nodes)


def _in_order(nodes: Nodes) -> tuple[int, ...]:
    return tuple(rank for _, ranks in nodes for rank in ranks)
