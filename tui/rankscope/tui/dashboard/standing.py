"""What is worked out from all ranks together, from one snapshot to the next.

Of 16,384 ranks a few hundred change between two snapshots: whatever is kept for each rank is
worked out anew for those alone. Rows are compared by identity, so it does not matter how many
snapshots were passed over.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

    def place(self, rank: int) -> int | None:
        """Where its row is; None for a rank that is not here."""
        if self.places is not None:
            return self.places.get(rank)
        return rank if 0 <= rank < len(self.came) else None


def stand_of(status: Status, overview: Overview | None, before: Stand | None) -> Stand:
    """What is known of the ranks; from ``before``, of any earlier snapshot, where that holds."""
    came = as_came(status.ranks)
    blame = blame_of(status)
    placed = (status.world_size, _placed(overview))
    if before is None or len(before.came) != len(came):
        return _anew(came, blame, status, overview, placed)
    changed = list(compress(count(), map(is_not, came, before.came)))
    moved = placed != before.placed
    for at in changed:
        row, old = came[at], before.came[at]
        if row.rank != old.rank:
            return _anew(came, blame, status, overview, placed)
        moved = moved or row.host != old.host
    nodes, order = before.nodes, before.order
    if moved:
        nodes = _nodes(came, status.world_size, overview)
        order = _in_order(nodes)
    stand = Stand(came, before.places, blame, before.marks, before.tally, nodes, order, placed)
    blamed = _blamed_otherwise(blame, before.blame)
    if blamed is None or len(changed) + len(blamed) > len(came) // 2 or len(order) > len(came):
        return _marked(stand)
    marks, tally = list(before.marks), before.tally.copy()
    for at in {*changed, *(at for at in map(stand.place, blamed) if at is not None)}:
        mark = mark_of(came[at], blame)
        if mark is not marks[at]:
            tally[marks[at]] -= 1
            tally[mark] += 1
            marks[at] = mark
    return replace(stand, marks=marks, tally=+tally)


def _blamed_otherwise(now: Blame, before: Blame) -> frozenset[int] | None:
    """The ranks of which the findings say something else than before; None for all of them."""
    if now.all_held_up != before.all_held_up:
        return None
    return (
        (now.critical ^ before.critical)
        | (now.warned ^ before.warned)
        | (now.held_up ^ before.held_up)
    )


def _anew(
    came: Sequence[RankRow],
    blame: Blame,
    status: Status,
    overview: Overview | None,
    placed: tuple[object, ...],
) -> Stand:
    ranks = list(map(_rank_of, came))
    places = None if ranks == list(range(len(came))) else {r: at for at, r in enumerate(ranks)}
    nodes = _nodes(came, status.world_size, overview)
    return _marked(Stand(came, places, blame, [], Counter(), nodes, _in_order(nodes), placed))


def _marked(stand: Stand) -> Stand:
    """``stand`` with all its marks worked out."""
    came, blame = stand.came, stand.blame
    marks = [mark_of(row, blame) for row in came]
    # A Counter hashes each of them; there are few different ones, each the same object.
    by_id = Counter(map(id, marks))
    known = {id(mark): mark for mark in marks}
    tally: Counter[Mark] = Counter()
    for number, how_many in by_id.items():
        tally[known[number]] += how_many
    if len(stand.order) > len(came):
        here = set(map(_rank_of, came))
        absent = (rank for rank in stand.order if rank not in here)
        tally.update(BLAMED if rank in blame.critical else ABSENT for rank in absent)
    return replace(stand, marks=marks, tally=tally)


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
