"""Lines of the screen of runs."""

import shlex
from collections.abc import Sequence

from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    clip,
    fit,
    left,
    line,
    paragraph,
    right,
    width_of,
)
from rankscope.tui.runs import ListedRun
from rankscope.tui.words import numbers
from rankscope.tui.words import runs as words
from rankscope.tui.words.marks import safe

AGE, RANKS, MOST_NAME = 10, 5, 20
WIDE = 110
"""From this width on the name stands in a column of its own; else behind the verdict."""


def _run_width(runs: Sequence[ListedRun]) -> int:
    return max(3, *(len(run.run) for run in runs)) if runs else 3


def head_line(runs: Sequence[ListedRun], width: int) -> Line:
    name = f"{left('name', MOST_NAME)}  " if width >= WIDE else ""
    text = (
        f"   {left('run', _run_width(runs))}  {left('state', 12)}  {right('ranks', RANKS)}  "
        f"{right('age', AGE)}  {name}verdict"
    )
    return fit(line(Span(text, "dim")), width)


def detail_lines(run: ListedRun, width: int) -> list[Line]:
    """The selected run in full: its verdict, its command, its folder."""
    verdict = words.verdict(run)
    texts = [
        ("verdict", f"{verdict.glyph} {verdict.word}"),
        ("name", safe(run.name)),
        ("command", safe(shlex.join(run.command))),
        ("folder", safe(run.path)),
    ]
    lines: list[Line] = []
    for name, text in texts:
        if text:
            style = TONE_STYLES[verdict.tone] if name == "verdict" else ""
            lines += paragraph(Span(name, "dim"), 9, text, width, style=style, max_lines=2)
    return lines


def run_line(
    run: ListedRun,
    runs: Sequence[ListedRun],
    now_s: float,
    width: int,
    *,
    selected: bool,
    here: bool,
) -> Line:
    """One run; ``here``: it is the one shown."""
    state, verdict = words.STATES[run.state], words.verdict(run)
    age = numbers.age(None if run.created_s is None else now_s - run.created_s)
    wide = width >= WIDE
    name = f"{left(safe(run.name), MOST_NAME)}  " if wide else ""
    shown = "shown now" if here else ""
    verdict_text = f"{verdict.glyph} {verdict.word}"
    texts = (
        f" {'▸' if selected else ' '} {left(safe(run.run), _run_width(runs))}  ",
        f"{state.glyph} {left(state.word, 10)}",
        f"  {right(numbers.count(run.world_size), RANKS)}  {right(age, AGE)}  {name}",
    )
    used = sum(map(len, texts))
    behind = "" if wide or not run.name else f" · {safe(run.name)}"
    if used + width_of(verdict_text) + width_of(behind) >= width:
        behind = ""  # below the list it is told in full
    if selected:
        rest = f"{verdict_text}{behind}"
        if shown and used + width_of(rest) + width_of(shown) + 4 <= width:
            rest += f"   {shown}"
        return fit(
            line(Span("".join(texts) + clip(rest, max(0, width - used - 1)), "cursor")), width
        )
    return fit(
        line(
            texts[0],
            Span(texts[1], TONE_STYLES[state.tone]),
            texts[2],
            Span(verdict_text, TONE_STYLES[verdict.tone]),
            Span(behind, "dim"),
            Span(f"   {shown}" if shown else "", "accent"),
        ),
        width,
    )
