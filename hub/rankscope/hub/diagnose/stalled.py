"""``stalled``: no rank moves and nothing says why. A trace for the incident log, no verdict."""

import numpy as np

from rankscope.hub.diagnose.text import PHASE_WORDS, age_text, in_phase, ranks_text, step_in_work
from rankscope.hub.liveness import live
from rankscope.hub.runstate import run_state
from rankscope.hub.stall import stalled_s
from rankscope.hub.state import RunState
from rankscope.hub.state.silence import LOST_S
from rankscope.protocol.shapes import Finding

MAX_PLACES = 6


def stalled(
    state: RunState, findings: list[Finding], known: Finding | None, now_s: float
) -> list[Finding]:
    """The stall of a run of which no finding tells the cause.

    ``findings`` are the open ones; ``known`` is the stall that is open in the log.
    """
    if any(finding.severity != "info" for finding in findings):
        return []
    ranks = state.ranks
    waiting = np.flatnonzero(live(state))
    age_s = stalled_s(state, now_s)
    if age_s is None:
        # The hub was away: what is known goes on until somebody says that he has moved.
        away = waiting.size and now_s - state.away_until_s < LOST_S
        if known is not None and away and ranks.moved_s[waiting].max() <= state.away_from_s:
            return [known]
        return []
    if run_state(state, now_s) != "stalled":
        return []
    if (now_s - ranks.process_since_s[waiting] < LOST_S).any():
        return []  # it was stopped until now: give it the time to move
    places = _places(state, waiting.tolist())
    oldest = places[0][1][0]
    host = state.host(oldest)
    where = [f"{ranks_text(here)} {in_phase(phase)}" for phase, here in places]
    return [
        Finding(
            kind="stalled",
            severity="info",
            ranks=[],
            victims=waiting.tolist(),
            step=int(min(step_in_work(state, rank) for rank in waiting.tolist())),
            since_s=age_s,
            headline=f"no rank moves: {', '.join(where)}",
            evidence=[_place(state, phase, here, now_s) for phase, here in places],
            next=f"see where rank {oldest} stands: py-spy dump --pid {ranks.pid.item(oldest)}"
            + (f" (on {host})" if host else ""),
        )
    ]


def _places(state: RunState, waiting: list[int]) -> list[tuple[str, list[int]]]:
    """Ranks by phase, in the order in which the first of them stopped moving."""
    places: dict[str, list[int]] = {}
    for rank in waiting:
        code = int(state.ranks.phase[rank])
        word = PHASE_WORDS[code] if code < len(PHASE_WORDS) else "other"
        places.setdefault(word, []).append(rank)

    def stopped_s(place: tuple[str, list[int]]) -> float:
        return float(np.min(state.ranks.moved_s[place[1]]))

    return sorted(places.items(), key=stopped_s)[:MAX_PLACES]


def _place(state: RunState, phase: str, here: list[int], now_s: float) -> str:
    moved_s = state.ranks.moved_s[here]
    first = here[int(np.argmin(moved_s))]
    has = "has" if len(here) == 1 else "have"
    age = age_text(now_s - float(np.max(moved_s)))
    host = state.host(first)
    pid = f"pid {state.ranks.pid.item(first)}" + (f" on {host}" if host else "")
    return f"{ranks_text(here)} {has} been {in_phase(phase)} for {age} ({pid})"
