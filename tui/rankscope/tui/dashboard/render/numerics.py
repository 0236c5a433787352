"""Lines of the screen of numerics."""

from rankscope.protocol.shapes import Numerics, NumericsRow
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.cut import cut, left_out
from rankscope.tui.dashboard.render.evidence import STYLES
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import (
    BLANK,
    Line,
    Span,
    clip,
    fit,
    left,
    line,
    right,
    spread,
    wrap,
)
from rankscope.tui.words import numbers
from rankscope.tui.words import numerics as words
from rankscope.tui.words.marks import SEVERITIES, Mark, safe

RANK, STATE, NORM, DISTANCE = 5, 10, 8, 8


def origin_lines(view: Numerics, picture: Picture, width: int, most: int) -> list[Line]:
    """The findings of this field with their evidence, in at most ``most`` lines and a blank one.

    What the head of the screen says already (the verdict) is not said again.
    """
    if not view.findings:
        shown = [
            line("  ", Span(clip(safe(words.sign_text(sign)), width - 4), "dim"))
            for sign in view.signs
        ]
        where = picture.command("rankscope numerics")
        return [*cut(shown, most, width, where), BLANK] if shown else []
    lines: list[Line] = []
    for finding in view.findings:
        mark = SEVERITIES[finding.severity]
        style = STYLES[finding.severity]
        verdict = picture.verdict
        if verdict is None or verdict.headline != finding.headline:
            first, *more = wrap(safe(finding.headline), width - 6, 3) or [""]
            lines.append(line("  ", Span(f"{mark.glyph} {first}", style)))
            lines += [line("    ", Span(text, style)) for text in more]
        for text in finding.evidence:
            lines += [line("    ", each) for each in wrap(safe(text), width - 6, 2)]
    return [*cut(lines, most, width, "v shows them"), BLANK] if lines else []


def summary_lines(view: Numerics, width: int) -> list[Line]:
    """Replicas and ranks that are left out; then which gradients are not read at every step."""
    turns = words.turns_text(view)
    more = [line("  ", Span(clip(turns, width - 4), "dim"))] if turns else []
    return [_replicas_line(view, width), *more]


def _replicas_line(view: Numerics, width: int) -> Line:
    style = "bad" if view.replicas_equal is False else "dim"
    start = line("  ", Span(words.replicas_text(view), "bad" if style == "bad" else "dim"))
    end = line(Span(f"{numbers.plural(view.left_out, 'rank')} left out ", "dim"))
    return spread(start, end if view.left_out else (), width)


def course_width(view: Numerics, width: int) -> int:
    """Cells for the norms over time."""
    return max(0, min(len(view.steps), width - 5 - RANK - STATE - NORM - DISTANCE - 12))


def rank_head(view: Numerics, width: int) -> Line:
    cells = course_width(view, width)
    title = ""
    if cells and view.steps:
        title = clip(f"own gradient to step {numbers.count(view.steps[-1])}", max(cells, 24))
    text = (
        f"   {right('rank', RANK)}    {left('state', STATE)}  {right('norm', NORM)}  "
        f"{right('distance', DISTANCE)}  {title}"
    )
    return fit(line(Span(text, "dim")), width)


def rank_line(row: NumericsRow, mark: Mark, course: str, width: int, *, selected: bool) -> Line:
    """Rank, state, newest norm, distance, and the norms over time."""
    tone = TONE_STYLES[mark.tone]
    texts = (
        f" {'▸' if selected else ' '} {right(str(row.rank), RANK)}  ",
        f"{mark.glyph} {left(mark.word, STATE)}",
        f"  {right(numbers.norm(row.local_norm), NORM)}"
        f"  {right(words.distance(row.distance), DISTANCE)}  ",
        course,
    )
    if selected:
        return fit(line(Span("".join(texts), "cursor")), width)
    return fit(line(texts[0], Span(texts[1], tone), texts[2], Span(course, "bar")), width)


def parameter_lines(
    view: Numerics, rank: int, picture: Picture, width: int, most: int
) -> list[Line]:
    """The selected rank's parameters, those in trouble first; ``most`` lines with the heading."""
    if not view.parameters:
        return [line("  ", Span(f"rank {rank} has not told of its single parameters", "dim"))]
    step = numbers.count(view.parameters_step)
    heading = f"parameters of rank {rank}, step {step}, those in trouble first"
    lines = [line("  ", Span(heading, "accent"))]
    room = most - 1
    more = len(view.parameters) - room + 1 if len(view.parameters) > room else 0
    for each in view.parameters[: room - 1 if more else room]:
        value = each.value or numbers.norm(each.local_norm)
        lines.append(
            fit(
                line(
                    "   ",
                    Span(right(value, NORM), "bad" if each.value else ""),
                    "  ",
                    safe(each.name),
                ),
                width,
            )
        )
    if more:
        where = picture.command(f"rankscope numerics --rank {rank}")
        lines.append(left_out(more, "parameter", width, where, indent=3))
    return lines
