"""What came of a checkpoint that was asked for, as text."""

from rankscope.protocol.shapes import SaveOutcome
from rankscope.tui.text.output import toned
from rankscope.tui.words.numbers import count, size_bytes


def outcome_line(outcome: SaveOutcome) -> str:
    if outcome.ok:
        size = size_bytes(outcome.size_bytes) if outcome.size_bytes else ""
        parts = (f"step {count(outcome.step)}", size, outcome.notfinite)
        what = ", ".join(part for part in parts if part)
        return f"{toned('✓ complete', 'good')}   {what}   {outcome.path}"
    return f"{toned('✗ failed', 'bad')}   step {count(outcome.step)}   {outcome.text}"
