"""What is known of a checkpoint on disk, as text."""

from collections.abc import Mapping

from rankscope.protocol.checkpoints import State, Verified
from rankscope.tui.text.output import toned
from rankscope.tui.words.marks import Tone
from rankscope.tui.words.numbers import count, plural, size_bytes

_MARKS: Mapping[State, tuple[str, Tone]] = {
    "complete": ("✓", "good"),
    "incomplete": ("✗", "bad"),
    "corrupt": ("✗", "bad"),
}


def verified_text(found: Verified) -> list[str]:
    """The verdict in one line, then what is missing or wrong, then what is merely odd."""
    glyph, tone = _MARKS[found.state]
    of = ""
    if found.step is not None and found.world_size is not None:
        ranks = plural(found.world_size, "rank")
        of = f"   step {count(found.step)}, {ranks}, {size_bytes(found.size_bytes)}"
    lines = [f"{toned(f'{glyph} {found.state}', tone)}{of}   {found.path}"]
    lines += [f"  {problem}" for problem in found.problems]
    if found.notfinite:
        passed_over = "passes over it" if "NaN" in found.notfinite else "prefers one that does not"
        lines.append(f"  {toned(f'{found.notfinite}; --resume auto {passed_over}', 'warn')}")
    lines += [f"  {toned(note, 'quiet')}" for note in found.notes]
    if found.state == "complete" and not found.checksums:
        lines.append(f"  {toned('names and sizes only: the bytes were not read', 'quiet')}")
    return lines
