"""How far and how fast: step, throughput, loss, norm, their recent course, and the phases."""

import math
from collections.abc import Callable
from statistics import median

from rankscope.protocol.shapes import Overview
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, first_that_fit, fit, line
from rankscope.tui.dashboard.render.sparkline import sparkline
from rankscope.tui.words import numbers

PHASES = ("data", "forward", "backward", "optimizer", "other")
MIN_SPARK, MAX_SPARK = 8, 60


def number_lines(overview: Overview | None, width: int) -> list[Line]:
    """Three lines: the newest numbers, their course, and the phases of a step."""
    if overview is None:
        return []
    return [_newest(overview, width), _course(overview, width), phase_line(overview.phase_s, width)]


def _newest(overview: Overview, width: int) -> Line:
    steps_per_s = "0.00" if overview.state == "stalled" else _rate(overview.steps_per_s)
    tokens = numbers.si(0.0 if overview.state == "stalled" else overview.tokens_per_s)
    parts = [
        line(Span(" step ", "dim"), Span(f"{numbers.count(overview.step):>7}", "strong")),
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
    spread_s = overview.step_spread_s
    words = f"{numbers.span(overview.step_s):>7}"
    if spread_s is not None:
        words += f" ±{numbers.span(spread_s)}"
    words = f"{words:<16}"
    room = (width - len("  loss   step ") - len(words) - 2) // 2
    spark = max(MIN_SPARK, min(MAX_SPARK, room))
    times = [value for value in history.step_s if value is not None and math.isfinite(value)]
    # Step times are drawn from zero to three times the median: one slow step stands out, the
    # usual jitter stays flat.
    high = max(3 * median(times), 1e-9) if times else 1.0
    return fit(
        line(
            Span("  loss ", "dim"),
            Span(sparkline(history.loss, spark), "bar"),
            Span("  step ", "dim"),
            Span(sparkline(history.step_s, spark, low=0.0, high=high), "bar"),
            " ",
            words,
        ),
        width,
    )


def phase_line(phase_s: dict[str, float], width: int) -> Line:
    """One bar a phase, as long as its share of the step; milliseconds in a fixed width."""
    shown = [(name, phase_s[name]) for name in PHASES if name in phase_s]
    shown = [(name, s) for name, s in shown if name != "other" or s >= 0.02 * sum(phase_s.values())]
    total = sum(seconds for _, seconds in shown)
    if total <= 0:
        return line(Span("  phase ", "dim"), Span("no step yet", "dim"))
    words = [(name, f" {numbers.milliseconds(seconds):>5} ") for name, seconds in shown]
    taken = sum(len(name) + len(text) + 2 for name, text in words) + len("  phase ") + 3
    room = min(60, max(0, width - taken))
    parts: list[str | Span] = [Span("  phase ", "dim")]
    for (name, text), (_, seconds) in zip(words, shown, strict=True):
        cells = int(seconds / total * room + 0.5)
        parts += [Span(name, "dim"), text, Span("▇" * cells, "bar"), "  " if cells else " "]
    parts.append(Span("ms", "dim"))
    return fit(line(*parts), width)
