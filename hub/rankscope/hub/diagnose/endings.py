"""Who ended first, and whom that dragged along: what ``rank-dead`` and ``exception`` share.

An ending is the death of a process (from its sentinel) or an exception (from the rank itself).
The first one is the cause; the launcher then ends the others with SIGTERM, and later SIGKILL, and
peers raise connection errors or abort. Those are victims, whatever their exit codes say.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from rankscope.hub.outliving import ASKED_SIGNALS, outlived, was_killed
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags
from rankscope.hub.state.ranks import EXCEPTION, FINISHED, NO_EXIT_CODE, NO_GOODBYE, STOPPED

SAME_MOMENT_S = 0.2
"""Deaths of one kind this close together are independent: nobody's death kills that fast."""

SAME_EXCEPTION_S = 1.0
"""The same exception from the same line, this close together, has one cause on all ranks."""

CLOCK_FUZZ_S = 0.1
"""What two senders' clocks may disagree by. A hard death so near the first event comes first."""

REACTION_S = 0.5
"""A launcher reacts to a death within this time."""

TOGETHER_S = 0.1
"""Processes that were asked to end together have ended within this time (4 and 58 ms were seen);
those that a launcher asked when it had seen one end, not (160 and 242 ms)."""

HEEDED_WITHIN_S = 15.0
"""An interrupt is heeded when Python comes to run again: by a rank that waits in a collective only
once that fails, when the ranks that heeded it have gone."""

ALONE_S = 5.0
"""One rank alone has gone because it was interrupted, when so long after that no other has ended:
those that wait for it feel that it has gone, or its launcher ends them."""

LAUNCHER_KILLS_S = 25.0
"""A launcher kills ranks that do not heed what it asked them no sooner: 30 s, as a rule."""

GOODBYE_GRACE_S = 0.5
"""A goodbye and the end of its process come on two connections; the second may be quicker."""

SIGINT, SIGABRT, SIGKILL = 2, 6, 9
ASKED_EXITS = tuple(128 + signal for signal in ASKED_SIGNALS)
ASKED_EXCEPTIONS = ("KeyboardInterrupt", "SignalException")


@dataclass(frozen=True)
class Cause:
    """The first ending and what it took with it."""

    kind: Literal["death", "exception", "interrupt", "dragged"]
    """``dragged``: peers raised, but whose end they felt is not known."""
    ranks: list[int]
    victims: list[int]
    at_s: float


class _Event(NamedTuple):
    at_s: float
    rank: int
    kind: Literal["hard", "soft", "asked", "raised"]
    how: tuple[int, int]
    """Signal and exit code; (0, 0) for an exception."""


def bad_ends(state: RunState, now_s: float) -> Flags:
    """Which ranks' processes ended otherwise than in order, shape (columns,).

    Not yet where the rank itself may still say why."""
    ranks = state.ranks
    ended: Flags = ~np.isnan(ranks.ended_s)
    if not ended.any():
        return ended
    unsaid = may_tell(state, now_s)
    said_nothing = (ranks.goodbye == NO_GOODBYE) & ~unsaid
    if state.run_end is not None and state.run_end.exit_code == 0:
        said_nothing[:] = False
    bad: Flags = ended & (said_nothing | (_failed(state) & ~unsaid))
    bad &= ~_asked_after_end(state)
    return bad


def may_tell(state: RunState, now_s: float) -> Flags:
    """Ranks whose process has ended by itself, and whose own last words may still be on their way,
    shape (columns,)."""
    ranks = state.ranks
    soon: Flags = now_s - ranks.ended_heard_s < GOODBYE_GRACE_S  # false for NaN
    soon &= (ranks.goodbye == NO_GOODBYE) & ranks.known & (ranks.signal == 0)
    return soon


def _failed(state: RunState) -> Flags:
    """Whose process ended by a signal, or with an exit code that is none of success."""
    ranks = state.ranks
    failed: Flags = ranks.signal != 0
    failed |= (ranks.exit_code != 0) & (ranks.exit_code != NO_EXIT_CODE)
    return failed


def _asked_after_end(state: RunState) -> Flags:
    """Who was asked to end after it had ended in order: nothing is wrong with it."""
    asked: Flags = np.isin(state.ranks.signal, ASKED_SIGNALS)
    asked &= state.ranks.goodbye == FINISHED
    return asked


def ended_badly(state: RunState, now_s: float) -> bool:
    """Whether any rank ended otherwise than in order, whatever it may still say of that."""
    return bool(
        (_failed(state) & ~_asked_after_end(state)).any()
        or bad_ends(state, now_s).any()
        or (state.ranks.goodbye == EXCEPTION).any()
        or state.words.exceptions
    )


def cause(state: RunState, now_s: float) -> Cause | None:
    """The first ending that was not in order; None while there is none."""
    bad = bad_ends(state, now_s)
    raised = state.words.exceptions
    if not raised and not bad.any():
        return None
    events = _events(state, bad)
    if not events:
        return _dragged(state)
    first = min(events)  # by time, then by rank
    hard = [e for e in events if e.kind == "hard" and e.at_s <= first.at_s + CLOCK_FUZZ_S]
    if hard:
        first = min(hard)
    if first.kind == "asked":
        return _asked(state, first, events, now_s)
    if first.kind == "raised":
        return _made(state, "exception", _same_exception(state, first, events), first.at_s)
    named = [
        event.rank
        for event in events
        if event.kind == first.kind
        and event.how == first.how
        and (
            abs(event.at_s - first.at_s) <= SAME_MOMENT_S
            or _killed_while_stopped(state, event, first.at_s)
        )
    ]
    return _made(state, "death", named, first.at_s)


def _killed_while_stopped(state: RunState, event: _Event, first_s: float) -> bool:
    """Whether it was stopped when it was killed, and so by none of what the first death brought
    about: a launcher asks first, and waits for what a stopped rank cannot do."""
    if event.how[0] != SIGKILL or event.at_s - first_s > LAUNCHER_KILLS_S:
        return False
    return state.ranks.stopped_s.item(event.rank) < first_s  # false for NaN


def stopped_before(state: RunState, at_s: float) -> Flags:
    """Who was stopped before ``at_s``, and is so still or was until it was killed, shape
    (columns,): nothing that others did reached it."""
    ranks = state.ranks
    stopped: Flags = ranks.stopped_s < at_s
    stopped &= np.isnan(ranks.ended_s) | (ranks.signal == SIGKILL)
    return stopped


def _events(state: RunState, bad: Flags) -> list[_Event]:
    ranks = state.ranks
    raised = state.words.exceptions
    events = []
    index = np.flatnonzero(bad)
    ends = zip(
        index.tolist(),
        ranks.ended_s[index].tolist(),
        ranks.signal[index].tolist(),
        ranks.exit_code[index].tolist(),
        strict=True,
    )
    for rank, at_s, signal, code in ends:
        if rank in raised:
            continue  # its exception explains its end
        if signal in ASKED_SIGNALS or code in ASKED_EXITS:
            kind: Literal["hard", "soft", "asked"] = "asked"
        elif signal and signal != SIGABRT:
            kind = "hard"
        else:
            kind = "soft"
        events.append(_Event(at_s, rank, kind, (signal, code)))
    for rank, exception in raised.items():
        if exception.type in ASKED_EXCEPTIONS:
            events.append(_Event(exception.at_s, rank, "asked", (SIGINT, 0)))
        elif not exception.from_peer:
            events.append(_Event(exception.at_s, rank, "raised", (0, 0)))
    return events


def asked_of_run(state: RunState) -> int | None:
    """The signal that asked the run's command to end, as far as its launcher, or its exit code,
    tells; None where it was not asked."""
    end = state.run_end
    if end is None or (end.exit_code == 0 and not end.signal):
        return None
    for number in (end.asked, end.signal, end.exit_code - 128):
        if number in ASKED_SIGNALS:
            return number
    return None


def _asked(state: RunState, first: _Event, events: list[_Event], now_s: float) -> Cause | None:
    """Somebody ended the whole run, or one rank of it, with a signal that asks."""
    asked = sorted((e for e in events if e.kind == "asked"), key=lambda e: e.at_s)
    if _interrupted(first) and state.size() > 1:
        others = [e.at_s - first.at_s for e in asked if e.rank != first.rank and _interrupted(e)]
        if min(others, default=math.inf) <= HEEDED_WITHIN_S:
            # Launchers end the peers of a rank that died with SIGTERM: this was meant for all.
            return Cause("interrupt", [], sorted(event.rank for event in asked), first.at_s)
        gone_s = state.ranks.ended_s.item(first.rank)
        if len(asked) == 1 and now_s - first.at_s <= HEEDED_WITHIN_S and math.isnan(gone_s):
            return None  # its end will show the others that they were interrupted, too
        if len(asked) == 1 and state.run_end is None and now_s - gone_s <= ALONE_S:
            return None
    whole_run = asked_of_run(state) is not None
    if len(asked) > 1:
        apart_s = asked[1].at_s - first.at_s
        spread_s = max(TOGETHER_S, asked[-1].at_s - asked[1].at_s)
        if TOGETHER_S < apart_s <= REACTION_S and _launchers_word_missing(state, first, now_s):
            return None  # it tells whether it was asked, and has asked the ranks for that
        alone = apart_s > (min(spread_s, REACTION_S) if _launcher_reacted(state) else REACTION_S)
    else:
        alone = _outlived(state, first, now_s)
    if alone and not whole_run:
        return _made(state, "death", [first.rank], first.at_s)
    if len(asked) == 1 and state.size() > 1 and not whole_run:
        return None  # too early to tell whether the others are asked, too
    return Cause("interrupt", [], sorted(event.rank for event in asked), first.at_s)


def _launchers_word_missing(state: RunState, first: _Event, now_s: float) -> bool:
    """Whether the launcher will say in a moment how its command ended."""
    return state.launched and state.run_end is None and now_s - first.at_s <= ALONE_S


def _launcher_reacted(state: RunState) -> bool:
    """Whether nobody had asked the launcher to end, and it was there to end the ranks of one that
    had."""
    there = state.run_end is not None and not outlived(state).any()
    return there and not was_killed(state) and asked_of_run(state) is None


def _outlived(state: RunState, first: _Event, now_s: float) -> bool:
    """Whether other ranks were not asked when it was: they were seen alive after a launcher's
    reaction, or would have ended by now. That nothing was heard of their end yet says nothing, nor
    that one lives that is stopped: it hears of no signal but SIGKILL."""
    if state.size() < 2 or now_s - first.at_s <= REACTION_S:
        return False
    ranks, size = state.ranks, state.size()
    others = (ranks.heard() & ~ranks.over())[:size]
    others[first.rank : first.rank + 1] = False
    stopped: Flags = others & (ranks.process[:size] == STOPPED)
    others &= ~stopped
    if not others.any():
        return not stopped.any() and not _killed_after(state, first, now_s)
    seen = ranks.alive_s[:size][others] > first.at_s + REACTION_S
    return bool(seen.any()) or now_s - first.at_s > ALONE_S


def _killed_after(state: RunState, first: _Event, now_s: float) -> bool:
    """Whether another was killed just now, as by a launcher whose ranks do not all heed what they
    were asked: it will say in a moment whether it was asked, too."""
    ranks, size = state.ranks, state.size()
    killed = (ranks.signal[:size] == SIGKILL) & (ranks.ended_s[:size] > first.at_s + REACTION_S)
    if state.run_end is not None or not state.launched or not killed.any():
        return False
    return bool(now_s - ranks.ended_s[:size][killed].max() <= ALONE_S)


def _interrupted(event: _Event) -> bool:
    """Whether it ended by SIGINT, also by way of KeyboardInterrupt."""
    return event.how[0] == SIGINT or event.how[1] == 128 + SIGINT


def _same_exception(state: RunState, first: _Event, events: list[_Event]) -> list[int]:
    raised = state.words.exceptions
    what = (raised[first.rank].type, raised[first.rank].source)
    return [
        event.rank
        for event in events
        if event.kind == "raised"
        and event.at_s - first.at_s <= SAME_EXCEPTION_S
        and (raised[event.rank].type, raised[event.rank].source) == what
    ]


def _dragged(state: RunState) -> Cause | None:
    raised = state.words.exceptions
    if not raised:
        return None
    return Cause("dragged", [], sorted(raised), min(e.at_s for e in raised.values()))


def _made(
    state: RunState, kind: Literal["death", "exception"], named: list[int], at_s: float
) -> Cause:
    """The cause with everybody else as victims, but those who had ended in order before, or were
    stopped."""
    ranks = state.ranks
    there = ranks.heard() | ~np.isnan(ranks.ended_s)
    ended_before = (ranks.goodbye == FINISHED) & (ranks.goodbye_s < at_s)
    affected = there & ~ended_before & ~stopped_before(state, at_s)
    affected[named] = False
    return Cause(kind, sorted(named), np.flatnonzero(affected).tolist(), at_s)
