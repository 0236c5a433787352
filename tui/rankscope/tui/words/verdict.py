"""The verdict line: the one sentence that says how the run is."""

from dataclasses import dataclass

from rankscope.protocol.shapes import Finding, State
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import was_interrupted
from rankscope.tui.words.evidence import in_short
from rankscope.tui.words.marks import SEVERITIES, STATES, Tone, safe

NOBODY_ATTACHED = "no rank called attach(…), or none reached the hub: nothing was watched"


@dataclass(frozen=True)
class Verdict:
    """``glyph head   text``, and further lines that belong under ``text``."""

    tone: Tone
    glyph: str
    head: str
    text: str
    more: tuple[str, ...] = ()

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
) -> Verdict:
    """The verdict from what ``Status`` and ``Overview`` hold of the same names.

    ``finding`` is the gravest open one. A notice does not make a run unwell. ``attached``: whether
    any rank was ever heard of. ``stopped``: that an operator ended it.
    """
    if finding is not None and finding.severity != "info":
        return _of_finding(state, finding, stalled_s)
    mark = STATES[state]
    if stopped and state == "finished":
        return Verdict("quiet", "■", "stopped", f"{safe(stopped)}{_exit_words(exit_code)}")
    if state == "running" and step == 0:
        return Verdict("quiet", "◌", "running", "no step is complete yet")
    match state:
        case "starting":
            text = "waiting for the first step"
        case "running" if healthy_s is not None:
            text = f"no finding for {numbers.age(healthy_s)}"
        case "running":
            text = f"step {numbers.count(step)}"
        case "stalled":
            text = f"no rank has moved since step {numbers.count(step)}"
        case "paused":
            text = f"at step {numbers.count(step)}"
        case "finished" | "failed" if not attached:
            text = f"{NOBODY_ATTACHED}{_exit_words(exit_code)}"
        case "finished" | "failed":
            text = f"at step {numbers.count(step)}{_exit_words(exit_code)}"
    head = mark.word
    if state == "stalled" and stalled_s is not None:
        head = f"{head} {numbers.age(stalled_s)}"
    return Verdict(mark.tone, mark.glyph, head, text)


def _of_finding(state: State, finding: Finding, stalled_s: float | None) -> Verdict:
    mark = SEVERITIES[finding.severity]
    tone, glyph = mark.tone, mark.glyph
    if was_interrupted(state, finding):
        tone, glyph, head = "warn", "■", "INTERRUPTED"
    elif state == "failed":
        tone, glyph, head = STATES["failed"].tone, STATES["failed"].glyph, "FAILED"
    elif state == "stalled":
        head = f"STALLED {numbers.age(finding.since_s if stalled_s is None else stalled_s)}"
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
