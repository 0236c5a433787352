"""``gil-held``: a rank says nothing, its process lives, and a thread of it keeps the GIL.

A thread that is somewhere else at the next reading does not keep it: it computes, in Python, and
the agent's own thread has had no turn, as on a machine with too much to do. That is a notice; so
is a thread that keeps it and computes, as a garbage collection does, for half a minute.
"""

import numpy as np

from rankscope.hub.diagnose.hang.scene import critical_s, late_s, stands, warmed_up
from rankscope.hub.diagnose.hang.words import frames_text
from rankscope.hub.diagnose.text import (
    at_text,
    cpu_text,
    main_thread_text,
    phase_of,
    ranks_text,
    step_in_work,
)
from rankscope.hub.diagnose.waiting import not_advancing
from rankscope.hub.inquiries import FOREIGN_STACKS
from rankscope.hub.liveness import COMPUTES_S, at_work, live, sentinel_link, silence_s
from rankscope.hub.state import RunState
from rankscope.hub.state.moved import moved_s
from rankscope.hub.state.ranks import ALIVE
from rankscope.hub.state.stacks import ThreadNote
from rankscope.protocol.shapes import Finding

SILENT_S = 0.8
"""An agent speaks every 0.5 s."""

STEADY_S = 0.8
"""Between two readings that find the same thread at the same line; one a second is asked for."""

FIRST_STEP_S = 30.0
"""In the first step libraries are loaded and code is compiled, which may keep the GIL."""

MAX_ASKED = 8

COLLECTOR_FRAMES = 8


def gil_held(state: RunState, now_s: float) -> list[Finding]:
    """All ranks that are read from outside to hold their GIL, in one finding."""
    silent = _silent(state, now_s)
    if not silent:
        return []
    ranks = state.ranks
    held = []
    for rank in silent[:MAX_ASKED]:
        state.inquiries.want(rank, FOREIGN_STACKS)
        note = state.stacks.outside.get(rank)
        if note is None or note.at_s < ranks.heard_s.item(rank):
            continue
        holder = note.gil_holder()
        if holder is not None and not (
            _collects(state, holder) and now_s - ranks.heard_s.item(rank) < COMPUTES_S
        ):
            held.append(rank)
    if not held:
        return []
    steady = [rank for rank in held if _steady_s(state, rank) >= STEADY_S]
    held = steady or held
    first = held[0]
    note = state.stacks.outside[first]
    age_s = now_s - float(np.max(ranks.heard_s[held]))
    if age_s < late_s(state):
        return []
    patience_s = critical_s(state) if warmed_up(state) else max(FIRST_STEP_S, critical_s(state))
    computes = all(at_work(state, rank, now_s) for rank in held)
    where: dict[str, str | int] = {"phase": phase_of(state, first)}
    if note.source:
        where["source"] = note.source
    holds = "holds" if len(held) == 1 else "hold"
    at = f": at {note.source}" if note.source else ""
    return [
        Finding(
            kind="gil-held",
            severity="critical" if steady and age_s >= patience_s and not computes else "info",
            ranks=held,
            victims=not_advancing(state, now_s, held),
            step=step_in_work(state, first),
            since_s=age_s,
            headline=f"{ranks_text(held)} {holds} the GIL and {'is' if len(held) == 1 else 'are'} "
            f"mute {at_text(state, first)}{at}",
            evidence=[
                f"sentinel on {state.host(rank)}: pid {ranks.pid.item(rank)} is alive; "
                + main_thread_text(state, rank)
                + cpu_text(state, rank, now_s)
                + f"; stack from outside: {frames_text(state, state.stacks.outside[rank])}"
                for rank in held[:4]
            ],
            next=f"see its native stack: py-spy dump --native --pid {ranks.pid.item(first)} "
            f"(on {state.host(first)})",
            where=where,
        )
    ]


def _steady_s(state: RunState, rank: int) -> float:
    """For how long the same line was seen to keep the GIL of a rank that was not heard since."""
    note = state.stacks.outside[rank]
    if note.gil_since_s is None:
        return 0.0
    return note.at_s - max(note.gil_since_s, state.ranks.heard_s.item(rank))


def _collects(state: RunState, holder: ThreadNote) -> bool:
    """Whether it is the interpreter's own garbage collection that keeps the GIL."""
    frames = state.stacks.frames_of(holder)[:COLLECTOR_FRAMES]
    return any("gc_collect" in function for _, _, function in frames)


def _silent(state: RunState, now_s: float) -> list[int]:
    """Ranks that are silent and alive while all who speak wait."""
    alive = live(state)
    size = len(alive)
    ranks = state.ranks
    silence = silence_s(state, now_s)
    silent = alive & (silence > SILENT_S) & (ranks.process[:size] == ALIVE)
    if not silent.any():
        return []
    speaking = alive & ~silent
    idle_s = now_s - moved_s(state)[:size][speaking]
    if not stands(idle_s, now_s - ranks.heard_s[:size][speaking]).all():
        return []  # the others go on, so it goes on too
    return [
        rank
        for rank in np.flatnonzero(silent).tolist()
        if sentinel_link(state.nodes.by_host.get(state.host(rank)), now_s) == "up"
    ]
