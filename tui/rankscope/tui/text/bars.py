"""Horizontal bars of two parts."""

from collections.abc import Sequence
from dataclasses import dataclass

GLYPHS = ("█", "░")
ASCII = ("#", ".")


@dataclass(frozen=True)
class Bar:
    labels: tuple[str, ...]
    parts: tuple[float, float]
    says: str


def bars(
    title: str, parts: Sequence[str], drawn: Sequence[Bar], width: int, utf8: bool
) -> list[str]:
    """A line each, all to one scale; a label like the one above is left out.

    ``parts`` names what bars are made of, where that needs to be said.
    """
    glyphs = GLYPHS if utf8 else ASCII
    named = [f"{glyph} {part}" for glyph, part in zip(glyphs, parts, strict=False)]
    lines = [f"{title}: {'  '.join(named)}" if named else title]
    columns = list(zip(*(bar.labels for bar in drawn), strict=True))
    widths = [max(map(len, column)) for column in columns]
    says = max((len(bar.says) for bar in drawn), default=0)
    room = max(4, width - 2 - sum(widths) - 2 * len(widths) - 1 - says)
    largest = max((sum(bar.parts) for bar in drawn), default=0.0) or 1.0
    before: tuple[str, ...] = ()
    for bar in drawn:
        labels = [
            "" if at == 0 and bar.labels[:1] == before[:1] else label
            for at, label in enumerate(bar.labels)
        ]
        told = "  ".join(f"{label:<{size}}" for label, size in zip(labels, widths, strict=True))
        first = round(bar.parts[0] / largest * room)
        whole = max(first, round(sum(bar.parts) / largest * room))
        lines.append(
            f"  {told}  {glyphs[0] * first}{glyphs[1] * (whole - first)} {bar.says}".rstrip()
        )
        before = bar.labels
    return lines
