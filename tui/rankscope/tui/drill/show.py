"""A whole drill: one trial after the other, told as they end."""

from collections.abc import Sequence
from pathlib import Path

from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit
from rankscope.protocol.shapes import DrillRow
from rankscope.tui.drill import table
from rankscope.tui.drill.book import Book
from rankscope.tui.drill.plan import Setting, Trial
from rankscope.tui.drill.trial import run
from rankscope.tui.text.output import complain, untoned, width, write


def drill(
    trials: Sequence[Trial], setting: Setting, out: Path | None, *, wait_s: float, json: bool
) -> Exit:
    """Do all ``trials``; a problem unless every verdict is exact.

    With ``json`` one document on stdout, and the rows as they come on stderr.
    """
    book = Book(out, setting)

    def tell(lines: list[str]) -> None:
        if not json:
            write(lines)
            return
        for line in lines:
            complain(untoned(line))

    tell(table.heading(setting, len(trials), width()))
    rows: list[DrillRow] = []
    for trial in trials:
        row = book.get(str(trial.spec))
        if row is None:
            row = run(trial, wait_s)
            book.add(row)
        rows.append(row)
        tell(table.lines(row, width()))
    tell(table.summary(rows))
    if json:
        print(jsontext.dumps(rows))
    return Exit.FINE if all(row.exact for row in rows) else Exit.PROBLEM
