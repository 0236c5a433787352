"""The verdict: the lines the eye goes to first. Whether it is well, and if not, who and why."""

from collections.abc import Mapping

from rankscope.protocol.shapes import Finding, Status
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.advice import advice
from rankscope.tui.dashboard.render.age import unheard_s, word_age_s
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    StyleName,
    fit,
    line,
    spread,
    text_of,
    width_of,
    wrap,
)
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import ENDED_STATES, about, was_interrupted
from rankscope.tui.words.marks import Tone
from rankscope.tui.words.nohub import HEAD, last_known, no_hub
from rankscope.tui.words.stall import advised, unexplained
from rankscope.tui.words.verdict import verdict

HEADLINE_LINES = 3
NEXT_LINES = 2
NO_HARM = "training does not need its hub"
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
    overview = picture.overview
    finding = last_known(status) if picture.unknown else status.verdict
    stale = _stale_head(picture, now_t_s)
    said = verdict(
        state=status.state,
        finding=finding,
        stalled_s=status.stalled_s,
        step=status.step,
        healthy_s=None if overview is None else overview.healthy_s,
        exit_code=status.exit_code,
        attached=bool(status.ranks),
        stopped=status.stopped,
        ending=status.ending,
        unheard_s=None if stale or picture.stands_still else unheard_s(picture, now_t_s),
    )
    trouble = said.known and said.tone in ("warn", "bad")
    if stale:
        # What is known is old: that comes first, and the old verdict is called so.
        was = f"  last known: {said.glyph} {said.head}"
        start = (*line(" ", Span(f" {stale} ", "bad_block"), was), Span(", "))
    else:
        start = line(" ", Span(f" {said.glyph} {said.head} ", TONES[said.tone]), "  ")
    hang = width_of(start)
    waits = status.state == "starting" and not trouble and not status.ending
    text = _waits_for(status) if waits else said.text
    if brief and finding is not None and trouble and _hides_kind(status, finding, said.head):
        text = f"{finding.kind}: {text}"
    style: StyleName = "dim" if stale else "strong" if trouble else ""
    error = f"{_why_stale(picture)}; {NO_HARM}" if stale else ""
    why = [
        fit(line(" " * INDENT, Span(each, "dim")), width)
        for each in wrap(error, width - INDENT - 1, 3)
    ]
    hint = line(Span(_hint(status, trouble), "dim"), " ")
    if stale and trouble:  # the words below its long head, not squeezed in beside it
        lines, hang, most = [fit(start[:-1], width)], INDENT, most - 1
        more = wrap(text, width - hang - 1, max(1, most) if brief else HEADLINE_LINES)
    else:
        first, *more = wrap(text, width - hang - 1, most if brief else HEADLINE_LINES) or [""]
        lines = [fit(line(*start, Span(first, style)), width)]
    lines += [fit(line(" " * hang, Span(each, style)), width) for each in more]
    if brief or stale or not trouble:
        if width_of(lines[-1]) + width_of(hint) + 1 < width:
            lines[-1] = spread(lines[-1], hint, width)
        elif (
            trouble and len(lines) >= most
        ):  # the key to the evidence goes before the headline's end
            lines[-1] = spread(lines[-1], line("  ", *hint), width)
        elif trouble:
            lines.append(spread((), hint, width))
        return [*lines, *why, *(() if brief else _again(status, width))]
    who = line(" " * INDENT, *_who(status, finding))
    if text_of((*who, *hint)).strip():
        lines.append(spread(who, line("  ", *hint) if text_of(hint).strip() else (), width))
    return [*lines, *_next(status, width)]


def _hides_kind(status: Status, finding: Finding, head: str) -> bool:
    """Whether the head of the verdict says something else than what was found."""
    return finding.kind not in head.lower() and not was_interrupted(status.state, finding)


def _no_news(picture: Picture, width: int) -> list[Line]:
    """Before the first answer of a hub."""
    snapshot = picture.snapshot
    if snapshot.link == "away":
        return [
            line(
                " ", Span(f" {_who_is_away(picture)} ", "bad_block"), "  no answer yet; asking on"
            ),
            *(line(" " * INDENT, each) for each in wrap(snapshot.error, width - INDENT - 1, 3)),
        ]
    if snapshot.replay:
        return [line(" ", Span(" ◌ opening ", "quiet_block"), "  the recording is being read")]
    return [line(" ", Span(" ◌ connecting ", "quiet_block"), "  asking the hub for the run")]


def _stale_head(picture: Picture, now_t_s: float) -> str:
    """Not empty when no hub says how the run is: then the rest is what was last known."""
    if not picture.unknown:
        return ""
    return f"{_who_is_away(picture)} {numbers.age(word_age_s(picture, now_t_s))}"


def _who_is_away(picture: Picture) -> str:
    return f"○ {HEAD if picture.no_hub else 'HUB SILENT'}"


def _why_stale(picture: Picture) -> str:
    """What is known of the hub that does not say anything."""
    if picture.snapshot.link == "away":
        return picture.snapshot.error
    if picture.snapshot.replay:
        return "the hub ended without a word, and nothing has started it again"
    return "the hub was asked and does not answer: it is stopped, or its node is busy"


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
    if no_hub(status) is not None:
        return "v evidence"
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


def _again(status: Status, width: int) -> list[Line]:
    """How to have a hub again, where it is gone for good."""
    gone = no_hub(status)
    return [] if gone is None else _step(gone.next.partition("; ")[0], width)


def _next(status: Status, width: int) -> list[Line]:
    """The next step to take, where one is known."""
    step = "" if status.verdict is None else status.verdict.next
    if unexplained(status):
        step = advised(status)
    return _step(step, width)


def _step(step: str, width: int) -> list[Line]:
    return advice(Span("next", "accent"), 6, step, width, indent=INDENT, most=NEXT_LINES)
