"""That this is not live, loudly: what stands in the title, and a line of the whole recording."""

import time

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, fit, line, rule
from rankscope.tui.feed.playhead import Past
from rankscope.tui.words import numbers

DAY_S = 86_400.0
NARROW = 60


def clock_time(at_s: float, span_s: float = 0.0) -> str:
    """``23:04:17`` in local time; with the day where the recording spans several."""
    form = "%m-%d %H:%M:%S" if span_s > DAY_S else "%H:%M:%S"
    return time.strftime(form, time.localtime(at_s))


def past_spans(past: Past) -> list[Span]:
    """``◀ PAST 23:04:17 paused``, and how far from the end that is."""
    state = f"playing ×{past.speed:g}" if past.playing else "paused"
    at = clock_time(past.at_s, past.last_s - past.first_s)
    spans = [Span(f" ◀ PAST {at} {state} ", "warn_block")]
    behind_s = past.last_s - past.at_s
    if past.growing:
        spans.append(Span(f" {numbers.age(behind_s)} ago", "warn"))
    return spans


def frozen_spans(frozen_t_s: float, now_t_s: float) -> list[Span]:
    return [Span(f" ‖ FROZEN {numbers.age(max(0.0, now_t_s - frozen_t_s))} ago ", "warn_block")]


def rule_or_timeline(picture: Picture, width: int) -> Line:
    """The line under the verdict: a rule, and while one looks at the past the recording from end
    to end, its incidents, and where in it one is."""
    past = picture.snapshot.past
    if past is None:
        return rule(width)
    span_s = max(1e-9, past.last_s - past.first_s)
    first = clock_time(past.first_s, span_s)
    last = "now" if past.growing else clock_time(past.last_s, span_s)
    keys = "  [ ] { } p + - End" if width >= NARROW else ""
    cells = width - len(first) - len(last) - len(keys) - 4
    if cells < 8:
        return rule(width)

    def column(at_s: float) -> int:
        return max(0, min(cells - 1, int((at_s - past.first_s) / span_s * (cells - 1) + 0.5)))

    track: list[tuple[str, StyleName]] = [("─", "dim")] * cells
    for moment in past.moments:
        if moment.at_s < past.first_s or moment.severity == "info":
            continue
        style: StyleName = "bad" if moment.severity == "critical" else "warn"
        if track[column(moment.at_s)][1] != "bad":
            track[column(moment.at_s)] = ("✗" if style == "bad" else "!", style)
    track[column(past.at_s)] = ("▲", "warn_block")
    return fit(
        line(
            " ",
            Span(first, "dim"),
            " ",
            *(Span(char, style) for char, style in track),
            " ",
            Span(last, "dim"),
            Span(keys, "dim"),
        ),
        width,
    )
