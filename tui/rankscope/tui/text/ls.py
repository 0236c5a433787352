"""The list of runs as text."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rankscope.tui.runs import ListedRun
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import Tone, safe

COLUMNS = (
    Column("run", right=False),
    Column("state", right=False),
    Column("exit"),
    Column("ranks"),
    Column("started", right=False),
    Column("age"),
    Column("name", right=False, least=8),
)
TONES: dict[str, Tone] = {"live": "good", "ended": "quiet", "stale": "warn", "unreadable": "bad"}


def ls_text(runs: Sequence[ListedRun], home: Path, now_s: float, width: int = 80) -> list[str]:
    """One line a run, newest first; a name is shortened where the line is too long."""
    if not runs:
        return [f"no runs in {home}; start one with: rankscope run -- CMD, or rankscope demo"]
    return table(COLUMNS, [_row(run, now_s) for run in runs], width)


def _row(run: ListedRun, now_s: float) -> tuple[str, ...]:
    return (
        safe(run.run),
        toned(run.state, TONES[run.state]),
        numbers.DASH if run.exit_code is None else str(run.exit_code),
        numbers.DASH if run.world_size is None else str(run.world_size),
        _started(run.created_s),
        numbers.age(None if run.created_s is None else now_s - run.created_s),
        safe(run.name or shlex.join(run.command) or run.note),
    )


def _started(created_s: float | None) -> str:
    if created_s is None:
        return numbers.DASH
    return time.strftime("%m-%d %H:%M", time.localtime(created_s))
