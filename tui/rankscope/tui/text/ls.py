"""The list of runs as text."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rankscope.tui.runs import ListedRun
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe
from rankscope.tui.words.runs import STATES, verdict

COLUMNS = (
    Column("run", right=False),
    Column("state", right=False),
    Column("exit"),
    Column("ranks"),
    Column("age"),
    Column("name", right=False, least=8),
    Column("verdict", right=False, least=12),
)


def ls_text(runs: Sequence[ListedRun], home: Path, now_s: float, width: int = 80) -> list[str]:
    """One line a run, newest first; where it is too long, verdict and name are shortened."""
    if not runs:
        return [f"no runs in {home}; start one with: rankscope run -- CMD, or rankscope demo"]
    return table(COLUMNS, [_row(run, now_s) for run in runs], width)


def _row(run: ListedRun, now_s: float) -> tuple[str, ...]:
    mark = verdict(run)
    return (
        safe(run.run),
        toned(run.state, STATES[run.state].tone),
        numbers.DASH if run.exit_code is None else str(run.exit_code),
        numbers.DASH if run.world_size is None else str(run.world_size),
        numbers.age(None if run.created_s is None else now_s - run.created_s),
        safe(run.name or shlex.join(run.command)),
        f"{mark.glyph} {mark.word}",
    )
