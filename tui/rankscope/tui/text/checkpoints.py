"""Saves and commands as text, in the words of the screen."""

from rankscope.protocol.shapes import CheckpointsView, Command, SaveOutcome, SaveRow
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.words import checkpoints as words
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

COLUMNS = (
    Column("rank"),
    Column("phase", right=False),
    Column("for"),
    Column("written"),
    Column("of"),
    Column("rate"),
)


def checkpoints_text(
    view: CheckpointsView, width: int = 80, at_s: float | None = None
) -> list[str]:
    """The newest checkpoint, the save in work, what came of earlier ones, and of commands.

    ``at_s``: the Unix time of the answer, for a view that does not say as of when its ages are.
    """
    as_of_s = at_s if view.as_of_s is None else view.as_of_s

    def ago(age_s: float) -> str:
        return numbers.ago(age_s, as_of_s, over=words.is_over(view))

    lines = [_newest(view), *_resumed(view)]
    if view.parity is not None:
        lines.append(safe(view.parity.text))
    text = view.note or view.pending
    if text:
        lines.append(f"in work: {safe(text)}")
    slowest = view.slowest if len(view.ranks) > 1 else None
    if view.ranks:
        lines += ["", words.total_text(view)]
        lines += table(COLUMNS, [_row(row, slowest) for row in view.ranks], width)
        if view.left_out:
            lines.append(f"{numbers.plural(view.left_out, 'rank')} further along left out")
    if view.outcomes:
        lines += [
            "",
            "saves, the newest first:",
            *(_outcome(one, ago(one.age_s)) for one in view.outcomes),
        ]
    if view.commands:
        lines += [
            "",
            "commands, the newest first:",
            *(_command(one, ago(since_s)) for one, since_s in words.past(view)),
        ]
    refused = {name: safe(why) for name, why in view.possible.items() if why}
    if len(refused) == len(view.possible) and len(set(refused.values())) == 1:
        lines += ["", f"no command is possible now: {next(iter(refused.values()))}"]
    elif refused:
        lines += ["", "not possible now:", *(f"  {name}: {why}" for name, why in refused.items())]
    return lines


def _newest(view: CheckpointsView) -> str:
    if view.last is None:
        return words.none_since(view.resumed) or "no checkpoint yet"
    head = f"checkpoint step {numbers.count(view.last.step)} {words.state_text(view.last)}"
    if view.last.resumed:
        head = f"resumed from {head}, nothing saved since"
    return f"{head}: {safe(view.last.path)}"


def _resumed(view: CheckpointsView) -> list[str]:
    """What a run that has saved since was resumed from."""
    text = words.resumed_text(view.resumed, view.last) if view.last is not None else ""
    if view.resumed is None or not text:
        return []
    return [f"{text}: {safe(view.resumed.path)}" if view.resumed.path else text]


def _row(row: SaveRow, slowest: int | None) -> tuple[str, ...]:
    rate = row.rate_bytes_per_s
    return (
        str(row.rank),
        f"{row.phase}, slowest" if row.rank == slowest else row.phase,
        numbers.age(row.phase_s),
        f"{words.share(row):.0%}",
        numbers.size_bytes(row.total_bytes),
        numbers.DASH if rate is None else f"{numbers.size_bytes(round(rate))}/s",
    )


def _outcome(one: SaveOutcome, ago: str) -> str:
    mark = words.outcome_mark(one)
    head = toned(f"{mark.glyph} {mark.word}", mark.tone)
    step = f"step {numbers.count(one.step)}"
    return f"  {head}  {step}  {ago}  {words.outcome_text(one)}"


def _command(one: Command, ago: str) -> str:
    mark = words.command_mark(one)
    head = toned(f"{mark.glyph} {mark.word}", mark.tone)
    told = f"{safe(one.author)}: {words.command_text(one)}".removesuffix(": ")
    return f"  {head}  {one.command}  {ago}  {told}"
