"""An operator's request on its way to the ranks: one at a time, until they have followed it. Pure.

A pause that the ranks are in leaves room for another one, which they follow where they stand.

The ranks agree among themselves on when; here is only whom to tell, how long, and what to say of
it meanwhile. What is in work may also be told by the ranks alone: a request of a signal, or one
that was made before the hub was restarted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rankscope.hub import possible
from rankscope.hub.liveness import live
from rankscope.hub.possible import have, some
from rankscope.hub.runstate import ended_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.controls import End, Row
from rankscope.protocol.messages import Order

AGAIN_S = 1.0
"""Ranks that do not seem to have heard are told again after this."""

EXPIRES_S = 600.0
"""The ranks have so long to agree."""

LOST_S = 60.0
"""A request of which no rank says anything for so long after that has come to nothing."""

SAVED_S = 900.0
"""Longer than a save may take: whoever agreed on one and never tells what came of it is gone."""

LAST_WORDS_S = 2.0
"""What came of a request may be told so long after the run's end: by a rank whose last words come
behind its launcher's."""

PAUSE_MINUTES, MAX_PAUSE_MINUTES = 30, 24 * 60
OWN = 1 << 24
"""Hubs number requests by their clock, ranks those of signals from 1."""


class Answer(NamedTuple):
    accepted: bool
    text: str
    reference: int = 0


@dataclass
class Pending:
    """A request in work."""

    request: int
    command: str
    author: str
    asked_s: float
    attempt: int
    lasts_s: float = 0.0
    told_s: float = -1e18
    stood: int | None = None
    """Of a pause that took effect: after which step the ranks stood."""
    ending: Order | None = None
    """What ends it: an order to cancel it or to resume."""
    ending_asked_s: float = 0.0
    ending_told_s: float = -1e18

    def busy(self) -> str:
        """That there is one, in words for whoever asks for another."""
        if not self.request:
            return ""
        what = self.command.replace("-and-", " and ")
        return f"{self.author} has asked for a {what} already"


class Over(NamedTuple):
    """A request that is over."""

    request: int
    command: str
    author: str
    asked_s: float
    state: str
    text: str
    step: int | None


class Orders:
    """The one request that is in work, if any, and the pause that the ranks are in."""

    def __init__(self) -> None:
        self.pending: Pending | None = None
        self.pause: Pending | None = None
        self._newest = 0

    @property
    def shown(self) -> Pending | None:
        """What views tell of."""
        return self.pending or self.pause

    @property
    def known(self) -> list[Pending]:
        """All that is not over."""
        return [one for one in (self.pause, self.pending) if one is not None]

    def ask(
        self,
        state: RunState,
        command: str,
        author: str,
        args: Mapping[str, int | str],
        now_s: float,
    ) -> Answer:
        """Whether ``command`` is accepted, in words, and the number of the request."""
        self.adopt(state, now_s)
        why = possible.refusals(state, self.busy(), now_s)[command]
        if why:
            return Answer(False, why)
        # Larger than any before, also before a restart of the hub.
        self._newest = max(self._newest + 1, int(now_s * 1000))
        if command in ("resume", "cancel"):
            return self._end(state, command, author, now_s)
        minutes = args.get("minutes", PAUSE_MINUTES)
        if not isinstance(minutes, int) or not 1 <= minutes <= MAX_PAUSE_MINUTES:
            return Answer(False, f"a pause lasts 1 to {MAX_PAUSE_MINUTES} minutes, not {minutes}")
        lasts_s = minutes * 60.0 if command == "pause" else 0.0
        self.pending = Pending(self._newest, command, author, now_s, state.attempt, lasts_s)
        what = {"checkpoint": "for a checkpoint", "pause": f"to pause, for {minutes} min at most"}
        asked = what.get(command, f"to {command.replace('-and-', ' and ')}")
        return Answer(True, f"asked {len(state.controls.rows)} ranks {asked}", self._newest)

    def _end(self, state: RunState, command: str, author: str, now_s: float) -> Answer:
        """Have the request in work, or the save in work, come to an end."""
        pending = self.pause if command == "resume" else self.pending
        if pending is None:
            pending = self.pending = Pending(0, "checkpoint", "", now_s, state.attempt)
        if pending.ending is not None:
            absent = _unanswered(state, pending)
            waits = f"; {absent}" if absent else ""
            return Answer(False, f"{pending.ending.author} has asked for that already{waits}")
        pending.ending = Order(command, self._newest, EXPIRES_S, author, pending.request)
        pending.ending_asked_s = now_s
        whose = f"the {pending.command} of {pending.author}" if pending.request else "the save"
        what = "resume" if command == "resume" else f"cancel {whose}"
        return Answer(True, f"asked the ranks to {what}", self._newest)

    def busy(self) -> str:
        """What is asked for already, in words; empty when nothing is."""
        return "" if self.pending is None else self.pending.busy()

    def adopt(self, state: RunState, now_s: float) -> None:
        """Take over what the ranks are in, where nothing is known of it here."""
        row = state.controls.in_work()
        known = {one.request for one in self.known}
        if row is not None and self.pending is None and row.request not in known:
            since_s = min(row.since_s, now_s)
            self.pending = Pending(row.request, row.command, row.author, since_s, state.attempt)
        pending = self.pending
        stood = self._paused(state)
        if pending is not None and pending.request in stood:
            pending.stood = stood[pending.request]
            self.pause, self.pending = pending, None

    def settle(self, state: RunState, now_s: float) -> list[Over]:
        """The requests that are over since this was asked last."""
        self.adopt(state, now_s)
        found = []
        for one in self.known:
            over = self._over(state, one, now_s)
            if over is None:
                continue
            if one is self.pause:
                self.pause = None
            else:
                self.pending = None
            found += _with_ending(one, over)
        return found

    def _over(self, state: RunState, pending: Pending, now_s: float) -> Over | None:
        def over(word: str, text: str, step: int | None = None) -> Over:
            return Over(
                pending.request, pending.command, pending.author, pending.asked_s, word, text, step
            )

        if not pending.request:  # a save that nobody asked for is to be cancelled
            if state.saves.in_work():
                return None
            newest = state.saves.outcomes[-1] if state.saves.outcomes else None
            text = "there was no save" if newest is None else newest.text
            return over("cancelled" if newest is not None and not newest.ok else "done", text)

        def gone(what: str, until: str) -> Over:
            """Those that were asked are no more."""
            if pending.stood is None:
                return over("given-up", f"{what} before anything came of it")
            text = f"paused after step {pending.stood}, until {until}"
            return over("done", text, pending.stood)

        if state.attempt != pending.attempt:
            again = "the ranks were started again"
            return gone(again, again)
        end = _end(state, pending.request)
        saved = state.saves.outcome(0, pending.request, state.attempt)
        gone_s = now_s - pending.asked_s
        if pending.command == "checkpoint" and saved is not None:
            cancelled = pending.ending is not None and not saved.ok
            word = "done" if saved.ok else "cancelled" if cancelled else "given-up"
            return over(word, saved.text, saved.step)
        within = any(row.request == pending.request for row in _rows(state).values())
        if end is not None and not (pending.command == "checkpoint" and end.phase == "done"):
            long = gone_s >= EXPIRES_S + LOST_S and pending.request not in self._standing(state)
            if within and not long:
                return None  # some ranks are in it yet
            return over(end.phase, end.text, end.boundary or None)
        if possible.run_over(state, now_s):
            if saved is not None:  # the rank that saved was ended before it said that it stops
                return over("done" if saved.ok else "given-up", saved.text, saved.step)
            end_s = ended_s(state, run_state(state, now_s))
            if end_s is not None and now_s - end_s < LAST_WORDS_S:
                return None
            return gone("the run ended", "all ranks had ended")
        if end is not None and gone_s > EXPIRES_S + SAVED_S:
            return over("given-up", "nothing was heard of the save that the ranks had agreed on")
        if end is None and not within and gone_s > EXPIRES_S + LOST_S:
            return over("given-up", "no rank has heard of it")
        return None

    @staticmethod
    def _paused(state: RunState) -> dict[int, int]:
        """The pauses that ranks stand in, and after which step."""
        here = (state.controls.rows[rank] for rank in state.controls.held)
        return {row.request: row.boundary for row in here if row.phase == "paused"}

    @staticmethod
    def _standing(state: RunState) -> set[int]:
        return {state.controls.rows[rank].request for rank in state.controls.held}

    def due(self, state: RunState, now_s: float) -> list[tuple[int, Order]]:
        """Whom to tell now."""
        return [told for one in self.known for told in self._due(state, one, now_s)]

    def _due(self, state: RunState, pending: Pending, now_s: float) -> list[tuple[int, Order]]:
        rows = state.controls.rows
        found = []
        ending = pending.ending
        if ending is not None and now_s - pending.ending_told_s >= AGAIN_S:
            pending.ending_told_s = now_s
            found += [(rank, ending) for rank in rows]
        left_s = pending.asked_s + EXPIRES_S - now_s
        stopped = ending is not None or left_s <= 0 or pending.request < OWN
        if not stopped and now_s - pending.told_s >= AGAIN_S and not _ended(state, pending.request):
            pending.told_s = now_s
            order = Order(
                pending.command,
                pending.request,
                left_s,
                pending.author,
                lasts_s=pending.lasts_s,
            )
            found += [(rank, order) for rank, row in rows.items() if row.request != pending.request]
        return found

    def text(self, state: RunState, now_s: float) -> str:
        """How far the request in work is, in words; empty when there is none."""
        pending = self.shown
        if pending is None or not pending.request:
            return ""
        rows = state.controls.rows
        saving = state.saves.in_work().values()
        if any(row.request == pending.request for row in saving) and pending.ending is None:
            return "saving"
        if pending.ending is not None:
            what = "resumed" if pending.ending.command == "resume" else "cancelled"
            absent = _unanswered(state, pending)
            return f"pending: to be {what}{f', but {absent}' if absent else ''}"
        if pending.request in self._standing(state):
            return _standing_text(state, pending.request)
        if self.pause is not None:
            return "pending: the ranks are told"
        ended = _ended(state, pending.request)
        unheard = [rank for rank, row in rows.items() if row.request != pending.request]
        if unheard and not ended:
            return f"pending: {have(sorted(unheard))} not heard of it"
        busy = {
            rank: state.progress.expecting[rank]
            for rank in rows
            if rank in state.progress.expecting and rows[rank].phase not in ("paused", "saving")
        }
        if busy:
            rank, what = sorted(busy.items())[0]
            return f"pending: rank {rank} is in {what}"
        told = [row.text for row in rows.values() if row.request == pending.request and row.text]
        return f"pending: {told[0]}" if told else "pending"


def _with_ending(pending: Pending, over: Over) -> list[Over]:
    """That ``pending`` is over, and with it what was to end it."""
    found = [over] if over.request else []
    ending = pending.ending
    if ending is not None:
        meant = over.state == ("done" if ending.command == "resume" else "cancelled")
        state_, text = ("done", over.text) if meant else ("given-up", f"too late: {over.text}")
        asked = ending.request, ending.command, ending.author, pending.ending_asked_s
        found.append(Over(*asked, state_, text, over.step))
    return found


def _unanswered(state: RunState, pending: Pending) -> str:
    """Who has not said yet that it is out of ``pending``, in words; empty when all have."""
    absent = sorted(r for r, row in _rows(state).items() if row.request == pending.request)
    return f"{have(absent)} not answered" if absent else ""


def _rows(state: RunState) -> dict[int, Row]:
    """Of ranks that live."""
    alive = live(state)
    return {r: row for r, row in state.controls.rows.items() if r < len(alive) and alive[r]}


def _end(state: RunState, request: int) -> End | None:
    end = state.controls.ends.get(request)
    return end if end is not None and end.attempt == state.attempt else None


def _ended(state: RunState, request: int) -> bool:
    return _end(state, request) is not None


def _standing_text(state: RunState, request: int) -> str:
    rows = state.controls.rows
    held = [rank for rank in sorted(state.controls.held) if rows[rank].request == request]
    row = rows[held[0]]
    if row.phase != "arrived":
        return f"{row.phase} after step {row.boundary}"
    others = sorted(rank for rank in rows if rank not in held)
    are = "is" if len(others) == 1 else "are"
    coming = f"; {some(others)} {are} not there yet" if others else ""
    return f"pending: at the boundary after step {row.boundary}{coming}"
