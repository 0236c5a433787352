"""The first line: which run this is, and how old what is shown is."""

import time

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.age import as_of, unheard_s, word_age_s
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    StyleName,
    first_that_fit,
    fit,
    line,
    spread,
    width_of,
    wrap,
)
from rankscope.tui.dashboard.render.timeline import frozen_spans, past_spans
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe
from rankscope.tui.words.verdict import FRESH_S

ANSWERS_S = 1.0
"""A hub is asked four times a second: of one that has not answered for longer it is not known
whether it is there."""


def title_line(picture: Picture, width: int, now_t_s: float, rights: str = "") -> Line:
    """``now_t_s``: the local monotonic clock, which tells how old the snapshot has become.
    ``rights``: that commands may be given, while they may."""
    may = (Span(f"▸ {rights}", "warn"), Span("  ")) if rights else ()
    now = freshness(picture, now_t_s)
    end = line(*may, *now, "  ", _up(picture, now_t_s), " ")
    start = [line(" ", Span("rankscope", "accent"), Span(f"  {_name(picture)}", "strong"))]
    if width_of(start[0]) + width_of(end) + 2 > width:  # which run it is goes before how old it is
        end = line(*may, *now, " ")
    overview = picture.overview
    if overview is not None:
        what = [f"attempt {overview.attempt}"] if overview.attempt else []
        what += [overview.trainer] if overview.trainer else []
        what += [numbers.plural(overview.world_size, "rank")] if overview.world_size else []
        if picture.node_count > 1:
            what.append(numbers.plural(picture.node_count, "node"))
        what += [overview.device] if overview.device else []
        start += [
            line(Span(f"{'· ' if index else ' '}{each}", "dim")) for index, each in enumerate(what)
        ]
    room = width - width_of(end) - 2
    return spread(first_that_fit(start, room, " "), end, width)


def control_lines(picture: Picture, width: int) -> list[Line]:
    """The operator's request in work, a pause, a stop; none when there is nothing of it."""
    text = "" if picture.status is None else picture.status.control
    if not text.strip() or width < 8:
        return []
    told = f"last known: {text}" if picture.unknown else text
    style: StyleName = "dim" if picture.unknown else "warn"
    first, *more = wrap(safe(told), width - 6, 2)
    return [
        fit(line("   ", Span(f"▸ {first}", style)), width),
        *(fit(line("     ", Span(each, style)), width) for each in more),
    ]


def freshness(picture: Picture, now_t_s: float) -> list[Span]:
    """``● live 0.2 s`` and its less pleasant forms."""
    snapshot = picture.snapshot
    if picture.opening:
        return [Span("◀ opening the recording", "warn")]
    if snapshot.past is not None and snapshot.link != "away":
        return past_spans(snapshot.past)
    if picture.frozen_t_s is not None:
        return frozen_spans(picture.frozen_t_s, now_t_s)
    if snapshot.replay and snapshot.status is None and snapshot.link == "connecting":
        return [Span("◌ opening", "dim")]
    if snapshot.replay and not picture.unknown:
        ended = _ended(picture)
        return [Span(f"■ recording{',' if ended else ''}{ended}", "dim")]
    age_s = word_age_s(picture, now_t_s)
    if snapshot.link == "away":
        for_s = age_s if snapshot.hub_s is not None else None
        word = "no hub" if picture.no_hub else "hub silent"
        return [Span(f"○ {word} {numbers.age(for_s)}".rstrip(numbers.DASH), "bad")]
    if picture.unknown:
        word = "no hub" if snapshot.replay else "hub silent"
        return [Span(f"○ {word} {numbers.age(age_s)}", "bad")]
    if snapshot.link == "connecting":
        return [Span("◌ connecting", "dim")]
    if picture.ended:
        return [Span(f"■{_ended(picture)}", "dim")]
    shown_s = unheard_s(picture, now_t_s)
    if shown_s is None:
        return [Span("● hub up", "good"), Span(", no rank yet", "dim")]
    if shown_s > FRESH_S:
        return [Span(f"○ silent {numbers.age(shown_s):>6}", "warn")]
    if age_s > ANSWERS_S and not picture.stands_still:
        return [Span(f"◌ asking {numbers.age(age_s)}", "warn")]
    return [Span(f"● live {numbers.age(shown_s)}", "good")]


def _ended(picture: Picture) -> str:
    """`` ended 11-29 18:15``, in local time; nothing while the run goes on."""
    overview = picture.overview
    if overview is None or not picture.ended:
        return ""
    if overview.ended_s is None:
        return " ended"
    return time.strftime(" ended %m-%d %H:%M", time.localtime(overview.ended_s))


def _up(picture: Picture, now_t_s: float) -> Span:
    overview = picture.overview
    if overview is None:
        return Span("")
    if picture.unknown:
        return Span(as_of(picture), "warn")
    still = picture.ended or picture.snapshot.replay or picture.stands_still
    moving = picture.snapshot.link == "up" and not still
    since_s = max(0.0, now_t_s - picture.snapshot.taken_t_s) if moving else 0.0
    word = "ran" if picture.ended else "up"
    return Span(f"{word} {numbers.clock(overview.up_s + since_s)}", "dim")


def _name(picture: Picture) -> str:
    overview = picture.overview
    return (overview.name if overview is not None and overview.name else "") or picture.title
