"""Marks: a glyph, a word and a tone for each state, so that no meaning hangs on colour alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rankscope.protocol.shapes import Link, RankRow, Severity

Tone = Literal["good", "quiet", "warn", "bad"]

TO_ASCII = dict(
    zip(
        map(ord, "✓✗●◌■◐·–‖▏─µ"),
        "+X*o-=--||-u",
        strict=True,
    )
) | {ord("…"): "...", ord("±"): "+-", ord("×"): "x", ord("→"): "->", ord("°"): ""}
"""What stands for each glyph where the terminal cannot show it."""


@dataclass(frozen=True)
class Mark:
    glyph: str
    word: str
    tone: Tone


STATES: Mapping[str, Mark] = {
    "starting": Mark("◌", "starting", "quiet"),
    "running": Mark("✓", "healthy", "good"),
    "paused": Mark("‖", "paused", "warn"),
    "stalled": Mark("✗", "STALLED", "bad"),
    "finished": Mark("✓", "finished", "good"),
    "failed": Mark("✗", "FAILED", "bad"),
}
"""The run's states (``shapes.State``)."""

SEVERITIES: Mapping[Severity, Mark] = {
    "info": Mark("·", "notice", "quiet"),
    "warning": Mark("!", "WARNING", "warn"),
    "critical": Mark("✗", "CRITICAL", "bad"),
}

GOOD_ENDS = frozenset({"", "exit 0"})


def rank_mark(row: RankRow) -> Mark:
    """The one cell of a rank: how it ended, or whether it is stopped, heard of, at work."""
    return own_mark(row.process, row.phase, row.link, row.ended, row.expecting)


@lru_cache(maxsize=4096)
def own_mark(process: str, phase: str, link: Link, ended: str, expecting: str) -> Mark:
    """The same from those fields of its row that it hangs on: thousands of ranks share few."""
    if process == "ended" or phase == "ended":
        if ended in GOOD_ENDS:
            return Mark("■", ended or "ended", "quiet")
        return Mark("✗", ended, "bad")
    if process == "stopped":
        return Mark("◐", "stopped", "bad")
    if link == "down":
        return Mark("✗", "down", "bad")
    if link == "silent":
        return Mark("◌", "silent", "warn")
    if phase == "starting":
        return Mark("◌", "starting", "quiet")
    # That it is in none of training's phases is no state that one would know what to make of.
    return Mark("●", safe(expecting) or ("at work" if phase == "other" else phase), "good")


def plain(text: str, utf8: bool) -> str:
    """``text`` for an output that shows UTF-8 or does not: then its glyphs become ASCII."""
    if utf8:
        return text
    return text.translate(TO_ASCII).encode("ascii", "replace").decode("ascii")


def safe(text: str) -> str:
    """``text`` on one line without control characters: names and errors come from outside."""
    return "".join(char if char.isprintable() else " " for char in text)
