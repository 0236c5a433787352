"""The first collective of a group in which its ranks differ, and which of them are wrong. Pure.

Equal sequences say nothing. Where they differ, most ranks are right against few; two camps of one
size are judged by what each of them did in the steps before; and where that tells nothing, it is
said so. What differs in every step alike, such as uneven splits, is no error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankscope.hub.diagnose.hang.table import GroupRows, label
from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.state import RunState
from rankscope.hub.state.habits import expected
from rankscope.hub.state.operations import TORCHS, UNKNOWN, Signature, Window
from rankscope.protocol.messages import Phase

SIZES_MAY_DIFFER = (
    *("gather", "scatter", "alltoall", "alltoall_base", "all_to_all", "coalesced", "_gather_base"),
)
"""Operations in which ranks pass different sizes by design."""

MAX_BEYOND = 8
"""Numbers looked at beyond the last one that all ranks have told."""

MANY = 512
MANY_EVERY_S = 0.5
"""So many ranks are compared no more often."""

MAX_CAMPS = 8
"""More different signatures at one number are compared by their operations only."""

MAX_LAWFUL = 64
"""Different ways to differ that are nobody's fault; there are never so many."""

MAX_SEQUENCES = 64
"""Distinct sequences that are compared in full."""


@dataclass(frozen=True)
class Difference:
    """Members that did something else in collective ``seq`` of ``group``."""

    group: GroupRows
    seq: int
    ranks: list[int]
    """Who is wrong."""
    others: list[int]
    odd: Signature
    usual: Signature | None
    """What the others did; None when that is known from the ranks' own past alone."""
    why: str
    """How it is known who is wrong; or that it is not."""
    at_s: float
    """When the last of them called it, as far as is known."""

    def source(self, state: RunState, rank: int) -> str:
        return state.operations.source_at(rank, self.group.name, self.seq)

    def lines(self, state: RunState) -> list[str]:
        """Who did what, and how it is known who is wrong."""
        lines = []
        for ranks, signature in ((self.ranks, self.odd), (self.others, self.usual)):
            if signature is not None and ranks:
                source = next(filter(None, (self.source(state, rank) for rank in ranks[:64])), "")
                called = f", called at {source}" if source else ""
                lines.append(
                    f"#{self.seq} of {label(self.group.name, self.group.description)} on "
                    f"{ranks_text(ranks)}: {signature.text()}{called}"
                )
        return [*lines, self.why]


Alike = list[tuple[Window, list[int]]]
"""Stretches of a group's collectives that differ, and the ranks that did each of them."""


def first_difference(state: RunState, group: GroupRows) -> Difference | None:
    """The first number at which members of the group differ and should not."""
    key = f"difference {group.name}"
    known = state.progress.derived.get(key)
    version = (state.operations.version, state.progress.version)
    now_s = state.last_tick_s or 0.0
    found: Difference | None
    if known is not None:
        (compared, at_s), found = known
        # Thousands of ranks tell one after the other: not each of them is worth a comparison.
        if compared == version or (len(group.ranks) > MANY and 0 <= now_s - at_s < MANY_EVERY_S):
            return found
    found = _find(state, group)
    state.progress.derived[key] = ((version, now_s), found)
    return found


def _find(state: RunState, group: GroupRows) -> Difference | None:
    windows = _windows(state, group)
    if len(windows) < 2:
        return None
    alike = _alike(windows)
    torchs = state.operations.torchs()
    lawful: set[frozenset[int]] = set()
    for seq in _candidates([window for window, _ in alike]):
        camps: dict[int, list[int]] = {}
        for window, ranks in alike:
            index = window.at(seq)
            if index != UNKNOWN:
                camps.setdefault(index, []).extend(ranks)
        if torchs in camps:
            camps = _by_caller(state, group, seq, camps, torchs)
        if len(camps) > MAX_CAMPS:
            camps = _by_name(state, camps)
        if len(camps) > 1 and frozenset(camps) not in lawful:
            found = _judge(state, group, seq, camps, windows)
            if found is not None:
                return found
            lawful.add(frozenset(camps))
            if len(lawful) >= MAX_LAWFUL:
                break
    return None


def _windows(state: RunState, group: GroupRows) -> dict[int, Window]:
    """What each rank told of the group."""
    told, name = state.operations.windows, group.name
    return {
        rank: window
        for rank in group.ranks.tolist()
        if rank in told and (window := told[rank].get(name)) and window.signatures
    }


def _alike(windows: dict[int, Window]) -> Alike:
    """Most of thousands of ranks did the same: that is looked at once."""
    found: dict[tuple[int, tuple[int, ...]], tuple[Window, list[int]]] = {}
    like, ranks = Window(0), list[int]()
    for rank, window in windows.items():
        # Mostly it is as the one before, and to see that costs a third of looking it up.
        if window.first != like.first or window.signatures != like.signatures:
            key = (window.first, tuple(window.signatures))
            like, ranks = found.setdefault(key, (window, []))
        ranks.append(rank)
    return list(found.values())


def _by_name(state: RunState, camps: dict[int, list[int]]) -> dict[int, list[int]]:
    """The camps by operation alone: where nearly every rank has sizes of its own, that is by
    design."""
    merged: dict[str, int] = {}
    named: dict[int, list[int]] = {}
    for index, ranks in camps.items():
        first = merged.setdefault(state.operations.signatures.values[index].name, index)
        named.setdefault(first, []).extend(ranks)
    return named


def _candidates(windows: Sequence[Window]) -> Iterable[int]:
    """Numbers at which some may differ, ascending."""
    ends = [window.end for window in windows]
    low = max(window.first for window in windows)
    high = min(ends)
    distinct: list[list[int]] = []
    for window in windows:
        stretch = window.signatures[low - window.first : high - window.first]
        if stretch not in distinct:
            distinct.append(stretch)
            if len(distinct) > MAX_SEQUENCES:
                break
    if len(distinct) > 1:
        columns = zip(*distinct, strict=False)
        for seq, column in enumerate(columns, start=low):
            if len(set(column) - {UNKNOWN}) > 1:
                yield seq
    yield from range(max(low, high), min(max(ends), max(low, high) + MAX_BEYOND))


def _by_caller(
    state: RunState, group: GroupRows, seq: int, camps: dict[int, list[int]], torchs: int
) -> dict[int, list[int]]:
    """The camps where of some ranks it is only known that their own code did not call it: they
    are with those whose own code did not, either."""
    merged: dict[int, list[int]] = {}
    for index, ranks in camps.items():
        own = any(state.operations.source_at(rank, group.name, seq) for rank in ranks)
        merged.setdefault(index if own else torchs, []).extend(ranks)
    return merged


def course(state: RunState, window: Window, seq: int) -> list[int]:
    """What a rank did up to ``seq``; where of some it is only known that it is torch's own, all
    that its own code did not call is."""
    done = window.signatures[: seq + 1 - window.first]
    torchs = state.operations.torchs()
    if torchs == UNKNOWN or torchs not in window.signatures:
        return done
    return [
        torchs if source == UNKNOWN and signature != UNKNOWN else signature
        for signature, source in zip(done, window.sources, strict=False)
    ]


def named(
    state: RunState, group: GroupRows, seq: int, ranks: Sequence[int], index: int, usual: bool
) -> Signature:
    """What the ranks did; of torch's own as exactly as it can be told, by what ``usual``ly is next
    or by what the trainer calls in their phase."""
    torchs = state.operations.torchs()
    values = state.operations.signatures.values
    if index != torchs:
        return values[index]
    for rank in [*ranks, *group.ranks.tolist()][:MAX_SEQUENCES]:
        window = state.operations.window(rank, group.name)
        if window is None or window.end < seq:
            continue
        did = window.at(seq) if rank in ranks else UNKNOWN
        if did not in (UNKNOWN, torchs):
            return values[did]
        own = {s for s, at in zip(window.signatures, window.sources, strict=True) if at != UNKNOWN}
        known = [UNKNOWN if one == torchs else one for one in window.signatures]
        guess = expected(known[: seq - window.first]) if usual else UNKNOWN
        if guess != UNKNOWN and guess not in own:
            return values[guess]
    return _by_trainer(state, ranks[0]) or TORCHS


def _by_trainer(state: RunState, rank: int) -> Signature | None:
    """The collective that DDP or FSDP calls in the phase the rank is in."""
    identity = state.ranks.identity.item(rank)
    trainer = state.words.identities.values[identity].trainer if identity >= 0 else ""
    if trainer == "ddp":
        return Signature("all_reduce", "", "")
    if trainer.startswith("fsdp"):
        back = state.ranks.work_phase[rank] == Phase.BACKWARD
        return Signature("reduce_scatter" if back else "all_gather", "", "")
    return None


def _judge(
    state: RunState,
    group: GroupRows,
    seq: int,
    camps: dict[int, list[int]],
    windows: dict[int, Window],
) -> Difference | None:
    values = state.operations.signatures.values
    usual = {index: _as_usual(state, group, seq, ranks) for index, ranks in camps.items()}
    if all(usual.values()):
        return None  # so it is in every step
    names = {values[index].operation for index in camps}
    if len(names) == 1 and names.issubset(SIZES_MAY_DIFFER):
        return None
    normal, why = _normal(group, camps, usual)
    if normal is None:
        return None
    ranks = sorted(rank for index, camp in camps.items() if index != normal for rank in camp)
    odd = next(index for index in camps if index != normal)
    called_s = [
        window.called_s
        for rank in (*ranks, *camps[normal])
        if (window := windows[rank]).first + len(window.signatures) == seq + 1
    ]
    return Difference(
        group=group,
        seq=seq,
        ranks=ranks,
        others=sorted(camps[normal]),
        odd=named(state, group, seq, ranks, odd, usual=False),
        usual=named(state, group, seq, camps[normal], normal, usual=True),
        why=why,
        at_s=max(called_s, default=0.0),
    )


def _as_usual(state: RunState, group: GroupRows, seq: int, ranks: Sequence[int]) -> bool | None:
    """Whether a rank of this camp did what came next in its steps before; None: it is not known."""
    window = state.operations.window(ranks[0], group.name)
    assert window is not None
    *before, did = course(state, window, seq)
    guess = expected(before)
    return None if guess == UNKNOWN else guess == did


def _normal(
    group: GroupRows, camps: dict[int, list[int]], usual: dict[int, bool | None]
) -> tuple[int | None, str]:
    """The camp that is right, and how that is known."""
    largest = max(camps.values(), key=len)
    total = sum(len(camp) for camp in camps.values())
    index = next(index for index, camp in camps.items() if camp is largest)
    if 2 * len(largest) > total:
        return index, f"{len(largest)} of {total} ranks agree"
    as_before = [index for index, known in usual.items() if known]
    if len(as_before) == 1:
        others = [rank for index, camp in camps.items() if index != as_before[0] for rank in camp]
        does = "does" if len(camps[as_before[0]]) == 1 else "do"
        return as_before[0], (
            f"{ranks_text(sorted(camps[as_before[0]]))} {does} what came next in the steps before, "
            f"{ranks_text(sorted(others))} {'does' if len(others) == 1 else 'do'} not"
        )
    # Nothing tells. The group's first rank is taken for the measure, as a convention.
    first = min(min(camp) for camp in camps.values())
    index = next(index for index, camp in camps.items() if first in camp)
    others = sorted(rank for key, camp in camps.items() if key != index for rank in camp)
    return index, (
        f"which of them is right cannot be known from {total} ranks: {ranks_text(others)} "
        f"differ{'s' if len(others) == 1 else ''} from rank {first}, and neither did so before"
    )
