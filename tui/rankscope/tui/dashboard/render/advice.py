"""Lines of the next step to take."""

from rich.cells import cell_len

from rankscope.protocol.pasting import pieces
from rankscope.tui.dashboard.render.line import Line, Span, clip, fit, left, line
from rankscope.tui.words.advice import advice_lines, wrapped_command

MANY = 1000


def advice(
    head: Span, head_width: int, text: str, width: int, *, indent: int = 2, most: int = MANY
) -> list[Line]:
    """``head`` in a column of its own, and ``text`` beside it, a command on a line of its own; none
    for no text. A command that is too long for a line goes on in the next one, as a shell takes it.

    Of more than ``most`` lines the last ones are left out, and of an argument that is too long for
    all of ``width`` its end: both show as an ellipsis, and are whole in what ``y`` copies.
    """
    room = width - indent - head_width - 1
    lines = advice_lines(text, room)
    broken = [part for each in lines for part in _broken(each, room)]
    if len(broken) <= most:
        lines = broken
    elif len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    shown = []
    for at, each in enumerate(lines):
        name = "" if at else clip(head.text, head_width - 1)
        if at and lines is broken and cell_len(each) > room:
            # Cut short, an argument could not be pasted: it begins further left.
            before = line(" " * max(0, min(indent, width - cell_len(each))))
            text = clip(each, width)
        else:
            before = line(" " * indent, Span(left(name, head_width), head.style))
            text = clip(each, room)
        shown.append(fit(line(*before, Span(text, "accent")), width))
    return shown


def _broken(text: str, room: int) -> list[str]:
    """A command that is too long for ``room`` in several lines; anything else as it is."""
    is_command = [to_copy for _, to_copy in pieces(text)] == [True]
    return wrapped_command(text, room) if is_command and cell_len(text) > room else [text]
