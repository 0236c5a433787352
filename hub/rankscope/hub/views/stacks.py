"""The view ``stacks``: where every rank is, equal places as one; the blamed and the rare on top."""

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.inquiries import FOREIGN_STACKS, STACKS
from rankscope.hub.liveness import live
from rankscope.hub.runstate import ENDED, as_of_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ALIVE
from rankscope.hub.state.stacks import StackNote, ThreadNote
from rankscope.hub.views.knowledge import Knowledge, asked_rank
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

REFRESH = "refresh"
"""An argument: not 0 to have the ranks asked at once; the answers are in the next replies. Without
it they are asked less and less often while somebody looks."""

SPEAKS_WITHIN_S = 1.0
"""Whoever was silent for longer is read from outside, if at all."""

MAX_PLACES = 64
MAX_NOTES = 8


def stacks(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.StacksView:
    """Ranks by the stack of their training thread; with ``rank`` that rank alone, all threads."""
    state = know.state
    rank = asked_rank(know, request)
    ranks = list(range(state.size())) if rank is None else [rank]
    word = run_state(state, now_s)
    as_of = as_of_s(state, word, now_s)
    _ask(state, ranks, now_s, at_once=bool(request.args.get(REFRESH)))
    found = {one: note for one in ranks if (note := state.stacks.newest(one)) is not None}
    places: dict[tuple[int, bool], list[int]] = {}
    for one, note in found.items():
        outside = state.stacks.is_outside(one, note)
        main = note.main() or note.threads[0]
        places.setdefault((main.stack, outside), []).append(one)
    blamed = {one for finding in know.findings for one in finding.ranks}
    rarest = sorted(
        places.items(),
        key=lambda place: (blamed.isdisjoint(place[1]), len(place[1]), place[1][0]),
    )
    there = state.ranks.heard()[: state.size()] | (state.ranks.process[: state.size()] == ALIVE)
    notes = _notes(state, ranks)
    if len(rarest) > MAX_PLACES:
        notes.append(f"{len(rarest) - MAX_PLACES} more places are not shown")
    return shapes.StacksView(
        run=state.run,
        groups=[
            _place(state, found[here[0]], here, outside, as_of)
            for (_, outside), here in rarest[:MAX_PLACES]
        ],
        missing=[one for one in ranks if one not in found and there[one]],
        notes=notes,
        ended=word in ENDED,
        threads=_threads(state, found[rank]) if rank is not None and rank in found else {},
    )


def _ask(state: RunState, ranks: list[int], now_s: float, at_once: bool) -> None:
    """Have ranks tell where they are; whoever cannot is read by its sentinel."""
    speaks = live(state) & (now_s - state.ranks.heard_s[: state.size()] < SPEAKS_WITHIN_S)
    for one in ranks:
        if speaks[one]:
            state.inquiries.want(one, STACKS, now=at_once)
        elif state.alive(one) or state.ranks.process[one]:
            state.inquiries.want(one, FOREIGN_STACKS, now=at_once)


def _place(
    state: RunState, note: StackNote, ranks: list[int], outside: bool, now_s: float
) -> shapes.StackGroup:
    return shapes.StackGroup(
        ranks=ranks,
        frames=_frames(state, note.main() or note.threads[0]),
        from_outside=outside,
        source=note.source,
        age_s=max(0.0, now_s - note.at_s),
    )


def _frames(state: RunState, thread: ThreadNote) -> list[shapes.FrameRow]:
    return [
        shapes.FrameRow(file=file, line=line, function=function)
        for file, line, function in state.stacks.frames_of(thread)
    ]


def _threads(state: RunState, note: StackNote) -> dict[str, list[shapes.FrameRow]]:
    threads: dict[str, list[shapes.FrameRow]] = {}
    for thread in note.threads:
        name = thread.name + (" (holds the GIL)" if thread.holds_gil else "")
        while name in threads:
            name += "'"
        threads[name] = _frames(state, thread)
    return threads


def _notes(state: RunState, ranks: list[int]) -> list[str]:
    """Why stacks are missing, the same reasons together."""
    reasons: dict[str, list[int]] = {}
    for one in ranks:
        outside = state.stacks.outside.get(one)
        if outside is not None and outside.error:
            reasons.setdefault(outside.error, []).append(one)
    return [f"{ranks_text(here)}: {why}" for why, here in list(reasons.items())[:MAX_NOTES]]
