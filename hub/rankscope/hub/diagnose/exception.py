"""``exception``: the first rank to raise, not those it dragged along."""

from rankscope.hub.diagnose import endings
from rankscope.hub.diagnose.text import PHASE_WORDS, ranks_text
from rankscope.hub.liveness import live, silence_s
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import STOPPED
from rankscope.hub.state.silence import LOST_S
from rankscope.hub.state.words import RankException
from rankscope.protocol.shapes import Finding

MAX_MESSAGE_CHARS = 120
TRACEBACK_LINES = 12
DRAGGED_GRACE_S = 1.0
"""Whose end the peers felt is usually known by then."""


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
            headline=f"{ranks_text(found.ranks)} raised {_what(raised)} at step {raised.step + 1}",
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
    if now_s - found.at_s < DRAGGED_GRACE_S:
        return []
    waiting = live(state)
    silent = silence_s(state, now_s) > LOST_S
    if (waiting & silent).any() or (state.ranks.process == STOPPED).any():
        return []  # that rank is the cause and has a finding of its own
    first = min(found.victims, key=lambda rank: state.words.exceptions[rank].at_s)
    raised = state.words.exceptions[first]
    return [
        Finding(
            kind="exception",
            severity="critical",
            ranks=[],
            victims=found.victims,
            step=raised.step + 1,
            since_s=now_s - found.at_s,
            headline=f"{ranks_text(found.victims)} lost a peer or timed out: {_what(raised)}",
            evidence=_evidence(state, found, raised),
            next="no rank is known to have caused it: look at ranks that are not attached, "
            "and at the network",
            where=_where(raised),
        )
    ]
