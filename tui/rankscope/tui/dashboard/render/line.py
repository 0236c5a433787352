"""Lines of styled text and their widths in terminal cells.

A style is a name (:data:`STYLES`), not a colour: the edge decides what it looks like, and a text
without styles still says everything.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len as any_cell_len
from rich.cells import set_cell_size

StyleName = Literal[
    "",
    "dim",
    "strong",
    "good",
    "warn",
    "bad",
    "accent",
    "bar",
    "good_block",
    "quiet_block",
    "warn_block",
    "bad_block",
    "cursor",
]

# What a terminal would act upon or a reader could be misled by: C0 and C1 controls, and the
# characters that reorder text. Host names and error messages come from other machines.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

ELLIPSIS = "…"


class Span(NamedTuple):
    text: str
    style: StyleName = ""


Line = tuple[Span, ...]

BLANK: Line = ()


def cell_len(text: str) -> int:
    """Cells that ``text`` takes; most of what is shown is ASCII."""
    return len(text) if text.isascii() else any_cell_len(text)


def line(*parts: str | Span) -> Line:
    """A line from plain strings and spans; empty parts are left out."""
    spans = (Span(part) if isinstance(part, str) else part for part in parts)
    return tuple(span for span in spans if span.text)


def plain(text: str) -> str:
    """``text`` with everything a terminal could act upon replaced by a space."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(" ", text)


def width_of(content: Line | str) -> int:
    """Cells that ``content`` takes."""
    if isinstance(content, str):
        return cell_len(content)
    return sum(cell_len(span.text) for span in content)


def clip(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells; what is cut off shows as an ellipsis."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS if width > 0 else ""


def left(text: str, width: int) -> str:
    """``text`` in exactly ``width`` cells, to the left."""
    if len(text) <= width and text.isascii():
        return text.ljust(width)
    return set_cell_size(clip(text, width), width)


def right(text: str, width: int) -> str:
    """``text`` in exactly ``width`` cells, to the right."""
    if len(text) <= width and text.isascii():
        return text.rjust(width)
    text = clip(text, width)
    return " " * (width - cell_len(text)) + text


def fit(content: Line, width: int) -> Line:
    """``content`` cut to ``width`` cells."""
    if width_of(content) <= width:
        return content
    taken: list[Span] = []
    room = width
    for span in content:
        size = cell_len(span.text)
        if size > room:
            if room > 0:
                taken.append(span._replace(text=clip(span.text, room)))
            break
        taken.append(span)
        room -= size
    return tuple(taken)


def spread(start: Line, end: Line, width: int) -> Line:
    """``start`` to the left and ``end`` to the right of ``width`` cells; ``start`` gives way."""
    end = fit(end, width)
    room = max(0, width - width_of(end))
    start = fit(start, room)
    return (*start, Span(" " * (room - width_of(start))), *end)


def join(parts: Iterable[Line], gap: str = "  ") -> Line:
    """The lines behind one another with ``gap`` between them; empty ones are left out."""
    joined: list[Span] = []
    for part in parts:
        if not part:
            continue
        if joined:
            joined.append(Span(gap))
        joined.extend(part)
    return tuple(joined)


def first_that_fit(parts: Sequence[Line], width: int, gap: str = "  ") -> Line:
    """As many of ``parts`` as fit whole, from the left: a narrow screen drops the last ones."""
    kept: list[Line] = []
    room = width
    for part in parts:
        if not part:
            continue
        need = width_of(part) + (len(gap) if kept else 0)
        if need > room and kept:
            break
        kept.append(part)
        room -= need
    return fit(join(kept, gap), width)


def wrap(text: str, width: int, max_lines: int) -> list[str]:
    """``text`` broken at blanks into lines of ``width`` cells; the last one is clipped."""
    if width <= 0 or max_lines <= 0:
        return []
    lines: list[str] = []
    current = ""
    words = text.split()
    for index, word in enumerate(words):
        longer = f"{current} {word}" if current else word
        if cell_len(longer) <= width:
            current = longer
        elif len(lines) == max_lines - 1:
            return [*lines, clip(" ".join([current, *words[index:]]).strip(), width)]
        else:
            if current:
                lines.append(current)
            current = word
    return [clip(each, width) for each in [*lines, current] if each]


def paragraph(
    head: Span,
    head_width: int,
    text: str,
    width: int,
    *,
    indent: int = 2,
    style: StyleName = "",
    max_lines: int = 8,
) -> list[Line]:
    """``head`` in a column of its own, and ``text`` wrapped beside it; at least one line."""
    wrapped = wrap(text, width - indent - head_width - 1, max_lines) or [""]
    heads = [head, *([Span("")] * (len(wrapped) - 1))]
    return [
        fit(
            line(
                " " * indent,
                Span(left(clip(h.text, head_width - 1), head_width), h.style),
                Span(each, style),
            ),
            width,
        )
        for h, each in zip(heads, wrapped, strict=True)
    ]


def text_of(content: Line) -> str:
    """The characters alone."""
    return "".join(span.text for span in content)


def rule(width: int) -> Line:
    return line(" ", Span("─" * max(0, width - 2), "dim"))
