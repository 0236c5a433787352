"""Lines of the screen of checkpoints and commands."""

from rankscope.protocol.shapes import Checkpoint, CheckpointsView, Command, SaveOutcome, SaveRow
from rankscope.tui.dashboard.action import Action
from rankscope.tui.dashboard.controlactions import CONTROL_ACTIONS
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import (
    BLANK,
    Line,
    Span,
    StyleName,
    clip,
    fit,
    left,
    line,
    paragraph,
    right,
    wrap,
)
from rankscope.tui.dashboard.screens.offers import LOCKED, no_command
from rankscope.tui.words import checkpoints as words
from rankscope.tui.words import numbers
from rankscope.tui.words.commands import in_short, waits_for
from rankscope.tui.words.marks import safe

HEAD = 12
RANK, PHASE, FOR, SHARE, AMOUNT, RATE = 6, 17, 7, 5, 19, 10
AGO = 17
"""``at 11-30 01:24:03``"""
MOST_BAR = 40
SHOWN_OUTCOMES = 12


def checkpoint_lines(
    view: CheckpointsView, picture: Picture, width: int, locked: str = ""
) -> list[Line]:
    """The newest checkpoint and the request in work; progress by rank; history; commands.

    ``locked``: why commands cannot be given from here, or not yet.
    """
    lines = [*_newest(view, picture, width), *_parity(view, width)]
    lines += _in_work(view, picture, width)
    if view.ranks:
        lines += [BLANK, *_progress(view, width)]
    lines += [BLANK, _title("what came of saves, the newest first")]
    lines += [
        _outcome_line(one, _ago(one.age_s, view, picture), width)
        for one in view.outcomes[:SHOWN_OUTCOMES]
    ]
    if not view.outcomes:
        text = "there was none" if picture.ended else "no save so far"
        lines.append(line("   ", Span(text, "dim")))
    none = _no_command(picture, locked)
    lines += [BLANK, _commands_title(none or locked, width)]
    for action in () if none else CONTROL_ACTIONS:
        lines += _command_lines(action, view, picture, width, locked)
    if view.commands:
        lines += [BLANK, _title("what came of commands")]
    for one, ago_s in words.past(view)[:SHOWN_OUTCOMES]:
        lines.append(_over_line(one, _ago(ago_s, view, picture), width))
    return lines


def _ago(age_s: float, view: CheckpointsView, picture: Picture) -> str:
    at_s = picture.snapshot.view_hub_s if view.as_of_s is None else view.as_of_s
    return numbers.ago(age_s, at_s, over=words.is_over(view))


def _title(text: str) -> Line:
    return line("  ", Span(text, "accent"))


def _no_command(picture: Picture, locked: str) -> str:
    """Why no command at all can be given from here; empty when one can, if only after ``u``."""
    return no_command(picture, allowed=locked in ("", LOCKED), why_not=locked)


def _commands_title(locked: str, width: int) -> Line:
    """Whether any can be given from here."""
    if not locked:
        return _title("commands")
    why = clip(safe(locked.removeprefix("commands are ")), max(0, width - 14))
    return (*_title("commands"), Span("   "), Span(why, "warn"))


def _newest(view: CheckpointsView, picture: Picture, width: int) -> list[Line]:
    saved: Checkpoint | None = view.last
    if saved is None:
        text = "none yet: what the run has done so far would be lost with it"
        if picture.ended:
            text = "none was saved: what the run had done is lost"
        return paragraph(
            Span("checkpoint", "dim"), HEAD, words.none_since(view.resumed) or text, width
        )
    made = next((one for one in view.outcomes if one.ok and one.step == saved.step), None)
    parts = [f"step {numbers.count(saved.step)} {words.state_text(saved)}"]
    if saved.resumed:
        parts.append("resumed from, nothing saved since")
    if made is not None:
        parts.append(_ago(made.age_s, view, picture))
    back = 0 if picture.status is None else picture.status.step - saved.step
    if back > 0:
        parts.append(f"{numbers.plural(back, 'step')} back")
    if made is not None:
        parts.append(numbers.size_bytes(made.size_bytes))
    lines = paragraph(Span("checkpoint", "dim"), HEAD, ", ".join(parts), width, style="strong")
    lines += paragraph(Span(""), HEAD, safe(saved.path), width, style="dim", max_lines=2)
    if (text := words.resumed_text(view.resumed, saved)) and view.resumed is not None:
        lines += paragraph(
            Span("resumed", "dim"),
            HEAD,
            f"{text.removeprefix('resumed ')}  {safe(view.resumed.path)}".rstrip(),
            width,
            style="dim",
            max_lines=2,
        )
    return lines


def _parity(view: CheckpointsView, width: int) -> list[Line]:
    """Whether a restarted run is what it was before."""
    if view.parity is None:
        return []
    text = safe(view.parity.text.removeprefix("parity: "))
    style: StyleName = "good" if view.parity.difference is None else "warn"
    return paragraph(Span("parity", "dim"), HEAD, text, width, style=style, max_lines=3)


def _in_work(view: CheckpointsView, picture: Picture, width: int) -> list[Line]:
    text = view.note or view.pending
    if picture.status is not None and picture.status.control == text != "":
        return []  # the head of the screen says it
    if view.command is not None and not text:
        text = f"{view.command.command} asked for by {safe(view.command.author)}"
    if not text:
        said = paragraph(Span("in work", "dim"), HEAD, "nothing", width, style="dim")
        return [] if picture.ended else said
    return paragraph(Span("in work", "dim"), HEAD, safe(text), width, style="warn", max_lines=3)


def _progress(view: CheckpointsView, width: int) -> list[Line]:
    """All together, then a bar a rank; the slowest is named in words, too."""
    bar = bar_width(width)
    slowest = view.slowest if len(view.ranks) > 1 else None
    head = (
        f"   {right('rank', RANK)}  {left('phase', PHASE)}{right('for', FOR)}  "
        f"{left('written', bar)}{right('', SHARE)}  {right('of', AMOUNT)}{right('rate', RATE)}"
    )
    lines = [_title(words.total_text(view)), fit(line(Span(head, "dim")), width)]
    lines += [_rank_line(row, row.rank == slowest, bar, width) for row in view.ranks]
    if view.left_out:
        told = f"{numbers.plural(view.left_out, 'rank')} further along left out"
        lines.append(line("   ", Span(told, "dim")))
    return lines


def bar_width(width: int) -> int:
    fixed = 3 + RANK + 2 + PHASE + FOR + 2 + SHARE + 2 + AMOUNT + RATE + 1
    return max(6, min(MOST_BAR, width - fixed))


def _rank_line(row: SaveRow, slowest: bool, bar: int, width: int) -> Line:
    share = words.share(row)
    full = round(share * bar)
    rate = numbers.DASH
    if row.rate_bytes_per_s is not None:
        rate = f"{numbers.size_bytes(round(row.rate_bytes_per_s))}/s"
    amount = f"{numbers.size_bytes(row.done_bytes)} of {numbers.size_bytes(row.total_bytes)}"
    return fit(
        line(
            f"   {right(str(row.rank), RANK)}  ",
            Span(
                left(f"{row.phase}{', slowest' if slowest else ''}", PHASE),
                "warn" if slowest else "",
            ),
            f"{right(numbers.age(row.phase_s), FOR)}  ",
            Span("█" * full, "warn" if slowest else "bar"),
            Span("░" * (bar - full), "dim"),
            f"{right(f'{share:.0%}', SHARE)}  {right(amount, AMOUNT)}{right(rate, RATE)}",
        ),
        width,
    )


def _outcome_line(one: SaveOutcome, ago: str, width: int) -> Line:
    mark = words.outcome_mark(one)
    style = TONE_STYLES[mark.tone]
    start = f"   {mark.glyph} {left(mark.word, 9)} "
    text = f"step {right(numbers.count(one.step), 7)}  {right(ago, AGO)}  "
    told = words.outcome_text(one)
    rest = clip(told, max(0, width - len(start) - len(text) - 1))
    quiet = one.ok and not one.notfinite
    return fit(line(Span(start, style), text, Span(rest, "dim" if quiet else "")), width)


def _command_lines(
    action: Action, view: CheckpointsView, picture: Picture, width: int, locked: str
) -> list[Line]:
    """One command: its key, and whether it would be accepted now; a reason is told in full."""
    name = words.command_of(action.name)
    why = words.why_not(name, view, readonly=False)
    waits = waits_for(name, picture.status)
    state = (
        f"not now: {safe(why)}" if why else waits or in_short(name, picture.status) or action.help
    )
    quiet = bool(why or (name and locked))
    head = f"   {right(action.key_text, 2)}  {left(action.label, 14)}  "
    first, *more = wrap(state, width - len(head) - 1, 3) or [""]
    tone: StyleName = "dim" if quiet else ""
    lines = [line(Span(head, "dim" if quiet else "strong"), Span(first, tone))]
    lines += [line(" " * len(head), Span(each, tone)) for each in more]
    return [fit(each, width) for each in lines]


def _over_line(one: Command, ago: str, width: int) -> Line:
    mark = words.command_mark(one)
    style: StyleName = "good" if mark.tone == "good" else "bad" if mark.tone == "bad" else "dim"
    start = f"   {mark.glyph} {left(mark.word, 9)} "
    text = f"{left(one.command, 19)}  {right(ago, AGO)}  "
    told = f"{safe(one.author)}: {words.command_text(one)}".removesuffix(": ")
    rest = clip(told, max(0, width - len(start) - len(text) - 1))
    return fit(line(Span(start, style), text, Span(rest, "dim")), width)
