"""The verdict line: the one sentence that says how the run is."""

from dataclasses import dataclass

from rankscope.protocol.shapes import Finding, State
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import suspicion, was_interrupted
from rankscope.tui.words.evidence import in_short
from rankscope.tui.words.marks import SEVERITIES, STATES, Tone, safe
from rankscope.tui.words.nohub import HEAD, is_no_hub

FRESH_S = 3.0
"""Ranks say something at least twice a second: data older than this is worth a word."""

NOBODY_ATTACHED = "no rank called attach(…), or none reached the hub: nothing was watched"


@dataclass(frozen=True)
class Verdict:
    """``glyph head   text``, and further lines that belong under ``text``."""

    tone: Tone
    glyph: str
    head: str
    text: str
    more: tuple[str, ...] = ()
    known: bool = True
    """False where no rank was heard for so long that what was well may be so no more."""

    def line(self) -> str:
        return f"{self.glyph} {self.head}   {self.text}".rstrip()


def verdict(
    *,
    state: State,
    finding: Finding | None,
    stalled_s: float | None,
    step: int,
    healthy_s: float | None = None,
    exit_code: int | None = None,
    attached: bool = True,
    stopped: str = "",
    ending: str = "",
    unheard_s: float | None = None,
) -> Verdict:
    """The verdict from what ``Status`` and ``Overview`` hold of the same names.

    ``unheard_s``: how long no rank was heard.

    ``finding`` is the gravest open one. A notice does not make a run unwell. ``attached``: whether
    any rank was ever heard of. ``stopped``: that an operator ended it. ``ending``: that some of
    its ranks have ended: it is not well then, whether or not it is known why.
    """
    if finding is not None and finding.severity != "info":
        return _of_finding(state, finding, stalled_s)
    mark = STATES[state]
    if stopped and state == "finished":
        return Verdict("quiet", "■", "stopped", f"{safe(stopped)}{_exit_words(exit_code)}")
    if ending and state in ("starting", "running"):
        return Verdict("quiet", "◌", "ending", safe(ending))
    if state == "running" and step == 0:
        return Verdict("quiet", "◌", "running", "no step is complete yet")
    match state:
        case "starting":
            text = "waiting for the first step"
        case "running" if unheard_s is not None and unheard_s > FRESH_S:
            head = f"not known for {numbers.age(unheard_s)}"
            free = "" if healthy_s is None else f", no finding for {numbers.age(healthy_s)}"
            return Verdict("warn", "○", head, f"was {mark.word}{free}", known=False)
        case "running" if healthy_s is not None:
            text = f"no finding for {numbers.age(healthy_s)}"
        case "running":
            text = f"step {numbers.count(step)}"
        case "stalled":
            text = f"no rank has moved since step {numbers.count(step)} was done"
            suspected = suspicion(state, finding)
            if suspected is not None:
                text = f"suspected: {safe(suspected.headline)}; {text}"
            if ending:
                text = f"{text}; {safe(ending)}"
        case "paused":
            text = f"after step {numbers.count(step)}"
        case "finished" | "failed" if not attached:
            text = f"{NOBODY_ATTACHED}{_exit_words(exit_code)}"
        case "finished" if ending:
            at = f"at step {numbers.count(step)} or later: {safe(ending)}"
            text = f"{at}{_exit_words(exit_code)}"
        case "finished" | "failed":
            text = f"at step {numbers.count(step)}{_exit_words(exit_code)}"
    head = mark.word
    if state == "stalled" and stalled_s is not None:
        head = f"{head} {numbers.age(stalled_s)}"
    return Verdict(mark.tone, mark.glyph, head, text)


def _of_finding(state: State, finding: Finding, stalled_s: float | None) -> Verdict:
    mark = SEVERITIES[finding.severity]
    tone, glyph = mark.tone, mark.glyph
    if is_no_hub(finding):
        head = HEAD  # what the run did then is not what it does
    elif was_interrupted(state, finding):
        tone, glyph, head = "warn", "■", "INTERRUPTED"
    elif state == "failed":
        tone, glyph, head = STATES["failed"].tone, STATES["failed"].glyph, "FAILED"
    elif state == "stalled":
        head = f"STALLED {numbers.age(finding.since_s if stalled_s is None else stalled_s)}"
    elif state == "paused":
        # Why nothing moves is that somebody wants it so, whatever else there is.
        head = f"{STATES[state].word}, {finding.kind.upper()}"
    elif finding.severity == "critical":
        head = finding.kind.upper()
    else:
        head = finding.kind
    more = tuple(safe(line) for line in in_short(finding))
    return Verdict(tone, glyph, head, safe(finding.headline), more)


def _exit_words(code: int | None) -> str:
    if code is None:
        return ""
    return f", exit code {code}"
