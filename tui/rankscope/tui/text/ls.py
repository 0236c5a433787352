"""The list of runs as text."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rankscope.tui.runs import ListedRun
from rankscope.tui.text.output import toned, untoned
from rankscope.tui.text.table import Column, clipped, table
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
)
TITLE = "verdict"
INDENT = 4
BESIDE = 18
"""A verdict of so many characters has its place in the run's own line."""


def ls_text(runs: Sequence[ListedRun], home: Path, now_s: float, width: int = 80) -> list[str]:
    """One line a run, newest first; a verdict that does not fit has a line of its own below."""
    if not runs:
        return [f"no runs in {home}; start one with: rankscope run -- CMD, or rankscope demo"]
    marks = [verdict(run) for run in runs]
    # The exit code has a column of its own.
    words = [f"{mark.glyph} {mark.word.partition(', exit code ')[0]}" for mark in marks]
    room = max(map(len, [TITLE, *(each for each in words if len(each) <= BESIDE)]))
    head, *lines = table(COLUMNS, [_row(run, now_s) for run in runs], max(0, width - room - 2))
    start = max(len(untoned(line)) for line in (head, *lines)) + 2
    told = [f"{head:<{start}}{TITLE}"]
    for line, mark, word in zip(lines, marks, words, strict=True):
        beside = len(word) <= width - start
        gap = " " * (start - len(untoned(line)))
        told.append(f"{line}{gap}{toned(word, mark.tone)}" if beside else line)
        if not beside:
            told.append(" " * INDENT + toned(clipped(word, width - INDENT), mark.tone))
    return told


def _row(run: ListedRun, now_s: float) -> tuple[str, ...]:
    return (
        safe(run.run),
        toned(run.state, STATES[run.state].tone),
        numbers.DASH if run.exit_code is None else str(run.exit_code),
        numbers.DASH if run.world_size is None else str(run.world_size),
        numbers.age(None if run.created_s is None else now_s - run.created_s),
        safe(run.name or shlex.join(run.command)),
    )
