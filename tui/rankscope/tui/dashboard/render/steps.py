"""Lines of the screen of steps: courses, phases, and ranks by time."""

import math
from collections.abc import Sequence
from statistics import fmean, median

from rankscope.protocol.shapes import StepAnomaly, StepsRow, StepsView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    StyleName,
    clip,
    fit,
    left,
    line,
    right,
    spread,
    width_of,
)
from rankscope.tui.dashboard.render.sparkline import by_bucket, drawn_out, sparkline
from rankscope.tui.words import numbers
from rankscope.tui.words import steps as words
from rankscope.tui.words.marks import Mark, safe

PHASES = ("data", "forward", "backward", "optimizer", "other")
NAME, VALUE = 10, 8
RANK, STATE, TIME, HOST = 6, 23, 8, 12
MOST_CELLS = 96
LEAST_CELLS = 14
"""Their steps are told above them in so many."""
NARROW = 100
"""Below this width the work of a rank gives way to its steps."""
HEADROOM = 1.25
"""The phases' common scale ends at this many medians of a step."""


def course_width(width: int) -> int:
    """Cells of a course beside its name and its newest value."""
    return max(8, min(120, width - NAME - VALUE - 6))


def course_lines(view: StepsView, width: int) -> list[Line]:
    """Loss and step time; below each where something stands out in it."""
    cells = course_width(width)
    loss = drawn_out(by_bucket(view.steps, view.loss, cells, fmean), cells)
    times = drawn_out(by_bucket(view.steps, view.step_s, cells, max), cells)
    usual = words.known(view.step_s)
    high = max(3 * median(usual), 1e-9) if usual else 1.0
    newest_loss = next((value for value in reversed(view.loss) if value is not None), None)
    odd_loss = [each for each in view.anomalies if each.what != "slow step"]
    slow = [each for each in view.anomalies if each.what == "slow step"]
    return [
        _course("loss", numbers.loss(newest_loss), sparkline(loss, cells), width),
        *_marked(view, odd_loss, cells, width),
        _course(
            "step",
            numbers.span(median(usual[-20:]) if usual else None),
            sparkline(times, cells, low=0.0, high=high),
            width,
        ),
        *_marked(view, slow, cells, width),
    ]


def phase_lines(view: StepsView, width: int) -> list[Line]:
    """One course a phase, all on one scale, and waiting in collectives below them."""
    cells = course_width(width)
    usual = [value for value in words.known(view.step_s) if math.isfinite(value)]
    high = max(HEADROOM * median(usual), 1e-9) if usual else 1.0
    courses: list[tuple[str, Sequence[float | None], StyleName]] = [
        (name, view.phase_s.get(name, []), "bar") for name in PHASES
    ]
    other = words.known(view.phase_s.get("other", []))
    if usual and (not other or median(other) < 0.02 * median(usual)):
        courses.pop()
    courses.append(("waiting", view.waited_s, "dim"))
    return [
        _of_phase(name, values, view.steps, cells, high, style, width)
        for name, values, style in courses
    ]


def _of_phase(
    name: str,
    values: Sequence[float | None],
    steps: Sequence[int],
    cells: int,
    high: float,
    style: StyleName,
    width: int,
) -> Line:
    newest = words.known(values)[-20:]
    shown = drawn_out(by_bucket(steps, values, cells, fmean), cells) if len(values) else []
    bars = sparkline(shown, cells, low=0.0, high=high)
    return _course(name, numbers.span(median(newest) if newest else None), bars, width, style)


def _course(name: str, value: str, bars: str, width: int, style: StyleName = "bar") -> Line:
    return fit(
        line("  ", Span(left(name, NAME), "dim"), right(value, VALUE), "  ", Span(bars, style)),
        width,
    )


def _marked(view: StepsView, odd: Sequence[StepAnomaly], cells: int, width: int) -> list[Line]:
    """A line with a mark below each odd step, and the newest of them in words where it fits."""
    if not odd or not view.steps:
        return []
    buckets = len(by_bucket(view.steps, view.step_s, cells, max))
    size = _bucket_size(view.steps, cells)
    first = view.steps[0] // size
    row = [" "] * cells
    styles = {"!": "warn", "✗": "bad"}
    for each in odd:
        place = each.step // size - first
        if 2 * buckets > cells:  # drawn out over the whole width
            place = -(-place * cells // max(buckets, 1))  # the first cell of its bucket
        if 0 <= place < cells:
            row[place] = words.anomaly_mark(each).glyph
    text = words.anomaly_text(odd[-1])
    if len(odd) > 1:
        text += f"; {len(odd) - 1} more like it"
    head = " " * (2 + NAME + VALUE + 2)
    marks = "".join(row).rstrip()
    at = len(marks) + 2
    worst: StyleName = "bad" if "✗" in marks else "warn"
    parts: list[str | Span] = [head]
    for char in marks:
        style = styles.get(char, "")
        parts.append(Span(char, "bad" if style == "bad" else "warn" if style else ""))
    if at + width_of(text) <= cells:
        parts.append(Span(f"  {text}", worst))
        return [fit(line(*parts), width)]
    blank = len(marks) - len(marks.lstrip())
    if width_of(text) + 2 <= blank:
        return [fit(line(head, Span(left(text, blank), worst), *parts[1 + blank :]), width)]
    return [
        fit(line(*parts), width),
        fit(line(head, Span(clip(text, width - len(head)), worst)), width),
    ]


def _bucket_size(steps: Sequence[int], cells: int) -> int:
    """Steps a cell, as :func:`by_bucket` takes them."""
    size = max(1, (steps[-1] - steps[0]) // cells)
    while steps[-1] // size - steps[0] // size + 1 > cells:
        size += 1
    return size


def _fixed(width: int) -> int:
    return 3 + RANK + 2 + STATE + (TIME + 1) * (3 if width >= NARROW else 2) + 3


def heat_width(view: StepsView, width: int) -> int:
    """Cells of the heat map beside a rank's numbers."""
    return max(0, min(len(view.late_steps), MOST_CELLS, width - _fixed(width)))


def _has_host(view: StepsView, width: int) -> bool:
    """Whether there is room for it; with few cells its head would stand over other numbers."""
    cells = heat_width(view, width)
    return cells >= LEAST_CELLS and width - _fixed(width) - cells >= HOST + 1


def heat_head(view: StepsView, width: int) -> Line:
    cells = heat_width(view, width)
    shown = view.late_steps[-cells:] if cells else []
    work = f" {right('work', TIME)}" if width >= NARROW else ""
    text = (
        f"   {right('rank', RANK)}    {left('pace', STATE - 2)}{work} "
        f"{right('waits', TIME)} {right('late by', TIME)}  "
    )
    steps = words.span(shown[0], shown[-1], width - len(text)) if shown else ""
    text += f"{left(steps, cells)}  host" if _has_host(view, width) else steps
    return fit(line(Span(text, "dim")), width)


def legend_line(view: StepsView, width: int) -> Line:
    """What the glyphs of the heat map mean, and how many ranks are not shown."""
    start = line("  ", Span(words.legend() if view.late_steps else _alone(view), "dim"))
    told = f"{numbers.plural(view.left_out, 'rank')} on time left out " if view.left_out else ""
    return spread(start, line(Span(told, "dim")), width)


def _alone(view: StepsView) -> str:
    if len(view.ranks) == 1:
        return "one rank: there is nobody to compare its pace with"
    return "no steps compared yet"


def pace_mark(picture: Picture, rank: int) -> Mark | None:
    """What ``rank`` is, where that is said in place of its pace."""
    mark, status = picture.mark(rank), picture.status
    state = "" if status is None else status.state
    return mark if words.keeps_no_pace(mark, state) else None


def heat_line(
    row: StepsRow, view: StepsView, width: int, of_rank: Mark | None = None, *, selected: bool
) -> Line:
    """One rank: its pace, work, waiting and lateness, and how late it was at each step.

    ``of_rank``: what the rank itself is, beside its pace.
    """
    mark = words.mark_of(row, of_rank)
    cells = heat_width(view, width)
    work = f" {right(numbers.span(row.work_s), TIME)}" if width >= NARROW else ""
    late = numbers.span(row.late_s) if row.phase and row.work_s else numbers.DASH
    texts = (
        f" {'▸' if selected else ' '} {right(str(row.rank), RANK)}  ",
        f"{mark.glyph} {left(mark.word, STATE - 2)}",
        f"{work} {right(numbers.span(row.waited_s), TIME)} {right(late, TIME)}  ",
    )
    shades = [words.shade(percent) for percent in row.late_percent[-cells:]] if cells else []
    room = left("", cells - len(shades))
    if selected:
        heat = "".join(glyph for glyph, _ in shades) + room
        host = f"  {left(safe(row.host), HOST)}" if _has_host(view, width) else ""
        return fit(line(Span("".join(texts) + heat + host, "cursor")), width)
    spans: list[Span] = []
    for glyph, tone in shades:
        style = TONE_STYLES[tone]
        if spans and spans[-1].style == style:
            spans[-1] = Span(spans[-1].text + glyph, style)
        else:
            spans.append(Span(glyph, style))
    host = f"  {left(safe(row.host), HOST)}" if _has_host(view, width) else ""
    return fit(
        line(
            texts[0],
            Span(texts[1], TONE_STYLES[mark.tone]),
            texts[2],
            *spans,
            room,
            Span(host, "dim"),
        ),
        width,
    )


def own_lines(view: StepsView, rank: int, width: int) -> list[Line]:
    """The selected rank's own phases over its newest steps, without its waiting."""
    if not view.rank_steps:
        return []
    cells = min(course_width(width), len(view.rank_steps))
    totals = [sum(one) for one in zip(*view.rank_phase_s.values(), strict=False)]
    high = max(HEADROOM * median(totals), 1e-9) if totals else 1.0
    span = f"steps {view.rank_steps[0]}–{view.rank_steps[-1]}"
    lines = [line("  ", Span(f"rank {rank}, its own work without waiting, {span}", "accent"))]
    for name in PHASES:
        values = view.rank_phase_s.get(name, [])
        if values and (name != "other" or max(values) >= 0.02 * high):
            bars = sparkline(values, cells, low=0.0, high=high)
            lines.append(_course(name, numbers.span(median(values)), bars, width))
    waited = words.known(view.rank_waited_s)
    bars = sparkline(view.rank_waited_s, cells, low=0.0, high=high)
    lines.append(
        _course("waiting", numbers.span(median(waited) if waited else None), bars, width, "dim")
    )
    return lines
