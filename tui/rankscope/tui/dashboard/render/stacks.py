"""Lines of the screen of stacks."""

from rankscope.protocol.shapes import StacksView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, clip, line, spread, wrap
from rankscope.tui.words import numbers
from rankscope.tui.words import stacks as words
from rankscope.tui.words.advice import advice_lines
from rankscope.tui.words.marks import safe

FRAMES = 8
"""Of each place; the text command shows all."""


def stack_lines(view: StacksView, picture: Picture, width: int) -> list[Line]:
    """One block a place, the rarest on top: who, their own line, and the way down from it."""
    lines: list[Line] = []
    names = words.files(view)
    odd = len(view.groups) > 1
    for index, group in enumerate(view.groups):
        style = "strong" if odd and not index else ""
        start = line("  ", Span(words.head(group, names), "strong" if style else ""))
        age = words.age(group, ended=view.ended)
        lines.append(spread(start, line(" ", Span(age, "dim"), " "), width))
        for frame in group.frames[:FRAMES]:
            lines.append(line("    ", Span(clip(words.frame(frame, names), width - 5), "dim")))
        left = len(group.frames) - FRAMES
        if left > 0:
            where = picture.command(f"rankscope stacks --rank {group.ranks[0]}")
            more = f"… {numbers.plural(left, 'frame')} more: {where}"
            lines += [line("    ", Span(each, "dim")) for each in advice_lines(more, width - 5)]
        lines.append(BLANK)
    if view.missing:
        lines.append(line("  ", Span(f"no stack yet of {numbers.ranks(view.missing)}", "dim")))
    for note in view.notes:
        lines += [line("  ", Span(text, "warn")) for text in wrap(safe(note), width - 4, 3)]
    return lines or [line("  ", Span("asking the ranks where they are …", "dim"))]
