"""How far and how fast: step, throughput, loss, norm, their recent course, and the phases."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median

from rankscope.protocol.shapes import Overview
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, first_that_fit, fit, line
from rankscope.tui.dashboard.render.sparkline import by_bucket, chart, drawn_out, sparkline
from rankscope.tui.words import numbers

PHASES = ("data", "forward", "backward", "optimizer", "other")
MIN_SPARK, MAX_SPARK = 8, 60
SCALE_WIDTH = 12
NUMBER_WIDTHS = (5, 4, 3)
"""Cells of a phase's milliseconds, from the comfortable to the tight."""


def number_lines(overview: Overview | None, width: int, chart_rows: int = 1) -> list[Line]:
    """The newest numbers, their course in ``chart_rows`` lines, and the phases of a step."""
    if overview is None:
        return []
    course = [_course(overview, width)] if chart_rows <= 1 else _charts(overview, width, chart_rows)
    return [_newest(overview, width), *course, phase_line(overview.phase_s, width)]


def _newest(overview: Overview, width: int) -> Line:
    steps_per_s = "0.00" if overview.state == "stalled" else _rate(overview.steps_per_s)
    tokens = numbers.si(
        0.0
        if overview.state == "stalled" and overview.tokens_per_s is not None
        else overview.tokens_per_s
    )
    parts = [
        line(Span(" steps", "dim"), Span(f"{numbers.count(overview.step):>7}", "strong")),
        line(f"{steps_per_s:>6}", Span(" step/s", "dim")),
        line(f"{tokens:>6}", Span(" tok/s", "dim")),
        line(Span("loss ", "dim"), _number(overview.loss, numbers.loss)),
        line(Span("‖g‖ ", "dim"), _number(overview.grad_norm, numbers.norm)),
    ]
    return fit(line(" ", *first_that_fit(parts, width - 2, "   ")), width)


def _rate(value: float | None) -> str:
    if value is None:
        return numbers.DASH
    return f"{value:.2f}" if value < 99.995 else f"{value:.0f}"


def _number(value: float | None, text: Callable[[float | None], str]) -> Span:
    style: StyleName = "bad" if value is not None and not math.isfinite(value) else ""
    return Span(f"{text(value):<7}", style)


def _course(overview: Overview, width: int) -> Line:
    """Sparklines of loss and step time, side by side, with the step time in words behind."""
    history = overview.history
    words = f"{numbers.step_time(overview.step_s, overview.step_spread_s):<14}"
    room = (width - len("  loss   step  ") - len(words) - 1) // 2
    spark = max(MIN_SPARK, min(MAX_SPARK, room))
    loss = drawn_out(by_bucket(history.step, history.loss, spark, fmean), spark)
    times = drawn_out(by_bucket(history.step, history.step_s, spark, max), spark)
    return fit(
        line(
            Span("  loss ", "dim"),
            Span(sparkline(loss, spark), "bar"),
            Span("  step ", "dim"),
            Span(step_time_sparkline(times, spark), "bar"),
            " ",
            words,
        ),
        width,
    )


def _charts(overview: Overview, width: int, rows: int) -> list[Line]:
    """Loss and step time as charts, each with its range beside it."""
    history = overview.history
    room = max(MIN_SPARK, min(80, (width - 2 * (SCALE_WIDTH + 3)) // 2))
    loss = drawn_out(by_bucket(history.step, history.loss, room, fmean), room)
    times = drawn_out(by_bucket(history.step, history.step_s, room, max), room)
    known = [value for value in loss if value is not None and math.isfinite(value)]
    high = _three_medians(times)
    # Of more steps than there are bars each bar is a mean: its extremes are not single losses.
    name = "loss (mean)" if len(history.step) > room else "loss"
    left_scale = [name] + [""] * (rows - 1)
    if known:
        left_scale = [
            name,
            numbers.loss(max(known)),
            *[""] * (rows - 3),
            numbers.loss(min(known)),
        ]
    right_scale = ["step", numbers.step_time(overview.step_s, overview.step_spread_s).strip()] + [
        ""
    ] * rows
    return [
        fit(
            line(
                Span(f"  {left_scale[row]:<{SCALE_WIDTH}}", "dim"),
                Span(loss_row, "bar"),
                Span(f"   {right_scale[row]:<{SCALE_WIDTH}}", "dim"),
                Span(times_row, "bar"),
            ),
            width,
        )
        for row, (loss_row, times_row) in enumerate(
            zip(
                chart(loss, room, rows),
                chart(times, room, rows, low=0.0, high=high),
                strict=True,
            )
        )
    ]


def _three_medians(times: Sequence[float | None]) -> float:
    known = [value for value in times if value is not None and math.isfinite(value)]
    return max(3 * median(known), 1e-9) if known else 1.0


def step_time_sparkline(times: Sequence[float | None], width: int) -> str:
    """Drawn from zero to three times the median: a slow step stands out, jitter stays flat."""
    return sparkline(times, width, low=0.0, high=_three_medians(times))


def phase_line(phase_s: dict[str, float], width: int) -> Line:
    """One bar a phase, as long as its share of the step; milliseconds in a fixed width."""
    shown = [(name, phase_s[name]) for name in PHASES if name in phase_s]
    # Beside the four phases a narrow line has room for the rest only when that is a lot.
    least = (0.02 if width >= 100 else 0.1) * sum(phase_s.values())
    shown = [(name, s) for name, s in shown if name != "other" or s >= least]
    total = sum(seconds for _, seconds in shown)
    if total <= 0:
        return line(Span("  phase ", "dim"), Span("no step yet", "dim"))
    for digits in NUMBER_WIDTHS:
        words = [(name, f" {numbers.milliseconds(s):>{digits}} ") for name, s in shown]
        gap = 2 if digits == NUMBER_WIDTHS[0] else 1 if digits > NUMBER_WIDTHS[-1] else 0
        taken = sum(len(name) + len(text) + gap for name, text in words) + len("  phase ") + 3
        if taken <= width:
            break
    while taken > width and len(words) > 1:  # a number without its name or unit is a riddle
        name, text = words.pop()
        taken -= len(name) + len(text) + gap
    bars = 60 if digits == NUMBER_WIDTHS[0] else 0
    room = min(bars, max(0, width - taken))
    parts: list[str | Span] = [Span("  phase ", "dim")]
    for (name, text), (_, seconds) in zip(words, shown[: len(words)], strict=True):
        cells = int(seconds / total * room + 0.5)
        after = "  " if cells else " " * min(gap, 1)
        parts += [Span(name, "dim"), text, Span("▇" * cells, "bar"), after]
    parts.append(Span("ms", "dim"))
    return fit(line(*parts), width)
