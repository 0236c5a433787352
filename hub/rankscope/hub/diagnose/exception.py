"""``exception``: the first rank to raise, not those it dragged along."""

import numpy as np

from rankscope.hub.diagnose import endings
from rankscope.hub.diagnose.text import PHASE_WORDS, ranks_text
from rankscope.hub.liveness import live, silence_s
from rankscope.hub.outliving import launcher_ended
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import FINISHED, STOPPED
from rankscope.hub.state.silence import LOST_S
from rankscope.hub.state.words import RankException
from rankscope.protocol.shapes import Finding

MAX_MESSAGE_CHARS = 120
TRACEBACK_LINES = 12
MAX_GONE = 4
DRAGGED_GRACE_S = 1.0
"""Whose end the peers felt is usually known by then."""

DRAGGED_PATIENCE_S = LOST_S + 1.0
"""A process that was left by its agent, or is silent, has this long to end: an interpreter may take
seconds to go down, and a silence becomes a finding of its own before."""

SPEAKS_WITHIN_S = 0.75
"""A rank that is there speaks every 0.5 s."""


def exception(state: RunState, now_s: float) -> list[Finding]:
    """The exception that came first; or that ranks raised because of one that is not known."""
    found = endings.cause(state, now_s)
    if found is None or found.kind not in ("exception", "dragged"):
        return []
    if found.kind == "dragged":
        return _dragged(state, found, now_s)
    raised = state.words.exceptions[found.ranks[0]]
    return [
        Finding(
            kind="exception",
            severity="critical",
            ranks=found.ranks,
            victims=found.victims,
            step=raised.step + 1,
            since_s=now_s - found.at_s,
            headline=f"{ranks_text(found.ranks)} raised {_what(raised)} in step {raised.step + 1}",
            evidence=_evidence(state, found, raised),
            next=f"read {raised.source}" if raised.source else "read the rank's traceback",
            where=_where(raised),
        )
    ]


def _what(raised: RankException) -> str:
    lines = raised.message.strip().splitlines()
    text = lines[0] if lines else ""
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return f"{raised.type}: {text}" if text else raised.type


def _where(raised: RankException) -> dict[str, str | int]:
    where: dict[str, str | int] = {}
    if raised.source:
        where["source"] = raised.source
    if raised.phase < len(PHASE_WORDS):
        where["phase"] = PHASE_WORDS[raised.phase]
    return where


def _evidence(state: RunState, found: endings.Cause, raised: RankException) -> list[str]:
    evidence = [line for line in raised.traceback.strip().splitlines() if line.strip()]
    evidence = evidence[-TRACEBACK_LINES:]
    dragged = [rank for rank in found.victims if rank in state.words.exceptions]
    if dragged:
        first = state.words.exceptions[dragged[0]]
        evidence.append(f"{ranks_text(dragged)} raised later: {_what(first)}")
    return evidence


def _dragged(state: RunState, found: endings.Cause, now_s: float) -> list[Finding]:
    if _may_be_told(state, found, now_s):
        return []
    waiting = live(state)
    silent = silence_s(state, now_s) > LOST_S
    if (waiting & silent).any() or (state.ranks.process == STOPPED).any():
        return []  # that rank is the cause and has a finding of its own
    first = min(found.victims, key=lambda rank: state.words.exceptions[rank].at_s)
    raised = state.words.exceptions[first]
    gone = _left_before(state, found)
    return [
        Finding(
            kind="exception",
            severity="critical",
            ranks=[],
            victims=found.victims,
            step=raised.step + 1,
            since_s=now_s - found.at_s,
            headline=f"{ranks_text(found.victims)} lost a peer or timed out: {_what(raised)}",
            evidence=[
                f"rank {rank} had said goodbye after step {state.ranks.step.item(rank)}"
                for rank in gone[:MAX_GONE]
            ]
            + _evidence(state, found, raised),
            next=f"look at {ranks_text(gone)}: gone while others went on training"
            if gone
            else "no rank is known to have caused it: look at ranks that are not attached, "
            "and at the network",
            where=_where(raised),
        )
    ]


def _may_be_told(state: RunState, found: endings.Cause, now_s: float) -> bool:
    """Whether the end that the peers felt may still become known."""
    if now_s - found.at_s < DRAGGED_GRACE_S or endings.may_tell(state, now_s).any():
        return True
    until_s = found.at_s + DRAGGED_PATIENCE_S
    if state.run_end_s is not None and launcher_ended(state, now_s):
        # It has seen all its processes end.
        until_s = min(until_s, state.run_end_s + DRAGGED_GRACE_S)
    if now_s >= until_s:
        return False
    ranks = state.ranks
    size = state.size()
    left = ranks.goodbye[:size] == FINISHED
    silent = live(state) & (silence_s(state, now_s) > SPEAKS_WITHIN_S)
    pending = (left | silent) & np.isnan(ranks.ended_s[:size])
    pending[[rank for rank in state.words.exceptions if rank < size]] = False
    return bool(pending.any())


def _left_before(state: RunState, found: endings.Cause) -> list[int]:
    """Ranks that had ended in order when their peers lost somebody."""
    ranks = state.ranks
    left = (ranks.goodbye == FINISHED) & (ranks.goodbye_s <= found.at_s + endings.CLOCK_FUZZ_S)
    return [rank for rank in np.flatnonzero(left).tolist() if rank not in state.words.exceptions]
