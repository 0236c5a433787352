"""Lines of the screen of incidents."""

from rankscope.protocol.shapes import Finding
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.advice import advice
from rankscope.tui.dashboard.render.cut import cut
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import Line, Span, clip, fit, left, line, right, wrap
from rankscope.tui.words import incidents as words
from rankscope.tui.words import numbers
from rankscope.tui.words.incidents import Entry
from rankscope.tui.words.marks import safe

TIME, LASTED, STEP = 11, 13, 9
NARROW = 100
"""Below this width the kind gives way: the headline names it in other words."""
KIND = 20


def head_line(width: int) -> Line:
    kind = f"  {left('kind', KIND)}" if width >= NARROW else ""
    text = f"   {left('opened', TIME)}  {left('lasted', LASTED)}  {right('step', STEP)}{kind}  what"
    return fit(line(Span(text, "dim")), width)


def entry_line(entry: Entry, now_s: float | None, width: int, *, selected: bool) -> Line:
    """One incident: when, how long, at which step, what."""
    finding, mark = entry.newest.finding, entry.mark
    kind = f"  {left(finding.kind, KIND)}" if width >= NARROW else ""
    start = (
        f" {'▸' if selected else ' '} {left(words.clock(entry.opened_s, now_s), TIME)}  "
        f"{left(words.lasted(entry, now_s), LASTED)}  "
        f"{right(numbers.count(finding.step), STEP)}{kind}  "
    )
    text = f"{mark.glyph} {safe(finding.headline)}"
    if selected:
        return fit(line(Span(start + clip(text, max(0, width - len(start) - 1)), "cursor")), width)
    open_ = entry.closed_s is None
    style = TONE_STYLES[mark.tone] if open_ else "dim"
    return fit(line(Span(start, "" if open_ else "dim"), Span(text, style)), width)


def detail_lines(
    entry: Entry, picture: Picture, now_s: float | None, width: int, most: int
) -> list[Line]:
    """What was known of the selected one, in at most ``most`` lines."""
    finding = entry.newest.finding
    texts = [("", finding.headline), *_of(finding, entry, now_s)]
    lines: list[Line] = []
    for name, text in texts:
        if name == "next":
            lines += advice(Span(name, "dim"), 12, safe(text), width)
            continue
        style = "strong" if not lines else ""
        for index, each in enumerate(wrap(safe(text), width - 14, 4)):
            head = Span(left(name if index == 0 else "", 10), "dim")
            lines.append(fit(line("  ", head, "  ", Span(each, "strong" if style else "")), width))
    return cut(lines, most, width, picture.command("rankscope incidents"))


def _of(finding: Finding, entry: Entry, now_s: float | None) -> list[tuple[str, str]]:
    """What is asked first stands first: a low screen has no room for all of the evidence."""
    parts = [finding.kind]
    if finding.ranks:
        parts.append(numbers.ranks(finding.ranks, 16))
    if entry.closed_s is not None:
        parts.append(f"over at {words.clock(entry.closed_s, now_s)}")
    texts = [("kind", ", ".join(parts))]
    if finding.next and entry.closed_s is None:
        texts.append(("next", finding.next))
    saved = entry.newest.last_checkpoint
    if saved is not None:
        texts.append(("checkpoint", f"step {numbers.count(saved.step)} at {saved.path}"))
    elif finding.kind != "command":
        texts.append(("checkpoint", "none then"))
    return texts + [("evidence" if not at else "", one) for at, one in enumerate(finding.evidence)]
