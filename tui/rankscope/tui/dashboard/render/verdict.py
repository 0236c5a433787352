"""The verdict: the lines the eye goes to first. Whether it is well, and if not, who and why."""

from collections.abc import Mapping

from rankscope.protocol.shapes import Finding, Status
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    StyleName,
    fit,
    line,
    paragraph,
    spread,
    text_of,
    width_of,
    wrap,
)
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import ENDED_STATES, about, was_interrupted
from rankscope.tui.words.marks import Tone
from rankscope.tui.words.stall import next_step, unexplained
from rankscope.tui.words.verdict import verdict

HEADLINE_LINES = 3
NO_HARM = "training does not need its hub and is not touched"
INDENT = 3
TONES: Mapping[Tone, StyleName] = {
    "good": "good_block",
    "quiet": "quiet_block",
    "warn": "warn_block",
    "bad": "bad_block",
}
PARTS: Mapping[str, StyleName] = {
    "kind": "dim",
    "culprit": "bad",
    "victims": "warn",
    "age": "dim",
}
"""The styles of what :func:`about` says."""


def verdict_lines(
    picture: Picture, width: int, now_t_s: float, *, brief: bool = False, most: int = 2
) -> list[Line]:
    """One to eight lines; ``brief`` keeps to kind and headline, in at most ``most`` lines.

    The first line begins with a glyph and a word, so that it is clear without colour.
    """
    status = picture.status
    if status is None:
        return _no_news(picture, width)
    overview, finding = picture.overview, status.verdict
    said = verdict(
        state=status.state,
        finding=finding,
        stalled_s=status.stalled_s,
        step=status.step,
        healthy_s=None if overview is None else overview.healthy_s,
        exit_code=status.exit_code,
        attached=bool(status.ranks),
        stopped=status.stopped,
    )
    trouble = said.tone in ("warn", "bad")
    stale = _stale_head(picture, now_t_s)
    if stale:
        # What is known is old: that comes first, and the old verdict is called so.
        start = line(
            " ", Span(f" {stale} ", "bad_block"), f"  last known: {said.glyph} {said.head},"
        )
        start = (*start, Span(" "))
    else:
        start = line(" ", Span(f" {said.glyph} {said.head} ", TONES[said.tone]), "  ")
    hang = width_of(start)
    text = _waits_for(status) if status.state == "starting" and not trouble else said.text
    if brief and finding is not None and trouble and _hides_kind(status, finding, said.head):
        text = f"{finding.kind}: {text}"
    style: StyleName = "strong" if trouble else ""
    error = f"{picture.snapshot.error}; {NO_HARM}" if stale else ""
    why = [
        fit(line(" " * INDENT, Span(each, "dim")), width)
        for each in wrap(error, width - INDENT - 1, 2)
    ]
    hint = line(Span(_hint(status, trouble), "dim"), " ")
    first, *more = wrap(text, width - hang - 1, most if brief else HEADLINE_LINES) or [""]
    lines = [fit(line(*start, Span(first, style)), width)]
    lines += [fit(line(" " * hang, Span(each, style)), width) for each in more]
    if brief or not trouble:
        if width_of(lines[-1]) + width_of(hint) + 1 < width:
            lines[-1] = spread(lines[-1], hint, width)
        elif (
            trouble and len(lines) >= most
        ):  # the key to the evidence goes before the headline's end
            lines[-1] = spread(lines[-1], line("  ", *hint), width)
        elif trouble:
            lines.append(spread((), hint, width))
        return [*lines, *why]
    who = line(" " * INDENT, *_who(status, finding))
    if text_of((*who, *hint)).strip():
        lines.append(spread(who, line("  ", *hint) if text_of(hint).strip() else (), width))
    return [*lines, *_next(status, width), *why]


def _hides_kind(status: Status, finding: Finding, head: str) -> bool:
    """Whether the head of the verdict says something else than what was found."""
    return finding.kind not in head.lower() and not was_interrupted(status.state, finding)


def _no_news(picture: Picture, width: int) -> list[Line]:
    """Before the first answer of a hub."""
    snapshot = picture.snapshot
    if snapshot.link == "away":
        return [
            line(" ", Span(" ○ NO HUB ", "bad_block"), "  no answer yet; asking on"),
            *(line(" " * INDENT, each) for each in wrap(snapshot.error, width - INDENT - 1, 3)),
        ]
    if snapshot.replay:
        return [line(" ", Span(" ◌ opening ", "quiet_block"), "  the recording is being read")]
    return [line(" ", Span(" ◌ connecting ", "quiet_block"), "  asking the hub for the run")]


def _stale_head(picture: Picture, now_t_s: float) -> str:
    """Not empty when the hub is away: then the rest is what was last known."""
    snapshot = picture.snapshot
    if snapshot.link != "away" or picture.ended:
        return ""
    return f"○ HUB AWAY {numbers.age(now_t_s - snapshot.taken_t_s)}"


def _waits_for(status: Status) -> str:
    """What a run that has not made its first step is waiting for."""
    here = {row.rank for row in status.ranks if row.pid is not None or row.heard_s is not None}
    missing = sorted(set(range(status.world_size)) - here)
    if not status.world_size and not here:
        return "no rank is here yet: they show up when the script reaches attach(…)"
    if missing and not here:
        return f"no rank is here yet, {numbers.count(status.world_size)} are expected"
    if missing:
        of = f"{numbers.count(len(here))} of {numbers.plural(status.world_size, 'rank')} here"
        return f"{of}, waiting for {numbers.ranks(missing, 4)}"
    late = [row.rank for row in status.ranks if row.step == 0]
    if late and len(late) < len(here):
        return f"waiting for the first step of {numbers.ranks(late, 4)}"
    return f"{numbers.plural(len(here), 'rank')} here, waiting for the first step"


def _hint(status: Status, trouble: bool) -> str:
    """How many more findings there are, and the key that opens them."""
    count = len(status.findings)
    if count == 0:
        return ""
    if trouble:
        return f"+{numbers.count(count - 1)} more, v evidence" if count > 1 else "v evidence"
    return f"{numbers.plural(count, 'notice')}, v opens"


def _who(status: Status, finding: Finding | None) -> list[Span]:
    """Kind, culprits and victims in a few words."""
    if finding is None and status.state == "paused":
        return []  # who wanted it stands below
    if finding is None:
        ended = status.state in ("finished", "failed")
        return [Span("no cause was found" if ended else "no cause found yet", "dim")]
    said = about(finding, status.state)
    parts = [Span(("  " if at else "") + text, PARTS[part]) for at, (part, text) in enumerate(said)]
    if status.state in ENDED_STATES and status.exit_code is not None:
        parts.append(Span(f"  exit code {status.exit_code}", "dim"))
    return parts


def _next(status: Status, width: int) -> list[Line]:
    """The next step to take, where one is known."""
    step = "" if status.verdict is None else status.verdict.next
    if unexplained(status):
        step = next_step(status.ranks)
    head = Span("next", "accent")
    return paragraph(head, 6, step, width, indent=INDENT, max_lines=2) if step else []
