"""The last lines: checkpoint, what was lost, what watching costs; and the keys."""

from rankscope.tui.dashboard.action import Action
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    first_that_fit,
    fit,
    line,
    spread,
    width_of,
)
from rankscope.tui.words import numbers
from rankscope.tui.words.checkpoints import holds, instead, resumed_text
from rankscope.tui.words.marks import safe


def state_line(picture: Picture, width: int) -> Line:
    """Last checkpoint to the left; drops and the agent's cost to the right."""
    overview = picture.overview
    if overview is None:
        return ()
    saved = overview.last_checkpoint
    if saved is None:
        checkpoint = line(Span("checkpoint  ", "dim"), "none")
    else:
        state = Span(" verified", "good") if saved.verified else Span(" not verified", "warn")
        checkpoint = line(Span("checkpoint  ", "dim"), f"step {numbers.count(saved.step)}", state)
        if saved.notfinite:
            told = f", {holds(saved.notfinite)}{instead(saved)}"
            checkpoint = line(*checkpoint, Span(told, "bad"))
        if saved.resumed:
            checkpoint = line(*checkpoint, Span(", resumed from", "dim"))
    if resumed := resumed_text(overview.resumed, saved):
        more = line(*checkpoint, Span(f", {resumed}", "dim"))
        checkpoint = more if width_of(more) + 4 <= width else checkpoint
    parts = [
        line(
            Span("agent cost ", "dim"),
            f"{numbers.span(overview.overhead_s_per_step):>7}",
            Span("/step", "dim"),
        ),
        line(
            Span("dropped ", "dim"),
            Span(numbers.count(overview.dropped), "warn" if overview.dropped else ""),
        ),
    ]
    if overview.bad_frames:
        parts.append(line(Span(f"refused frames {numbers.count(overview.bad_frames)}", "warn")))
    if overview.hub_restarts:
        parts.append(line(Span("hub restarts ", "dim"), numbers.count(overview.hub_restarts)))
    if overview.incidents:
        parts.append(line(Span("log entries ", "dim"), numbers.count(overview.incidents)))
    room = width - width_of(checkpoint) - 5
    fitting = [part for part in parts if width_of(part) <= room]  # none of it cut
    return spread(line("  ", *checkpoint), line(*first_that_fit(fitting, room, "   "), "  "), width)


def hub_lines(picture: Picture, width: int) -> list[Line]:
    """Whether a restarted run is what it was, and what is wrong with the hub itself, such as a
    full disk; none when there is nothing to say."""
    if picture.overview is None:
        return []
    lines = []
    if picture.overview.parity:
        lines.append(fit(line("  ", Span(safe(picture.overview.parity), "dim")), width))
    if picture.overview.hub_note:
        lines.append(fit(line("  ", Span(f"hub: {picture.overview.hub_note}", "warn")), width))
    return lines


def footer_line(actions: list[Action], width: int, position: str = "") -> Line:
    """Keys and what they do, as many as fit; ``position`` (where one is in a list) at the end."""
    parts = [line(Span(action.key_text, "accent"), f" {action.label}") for action in actions]
    end = line(Span(position, "dim"), " ") if position else ()
    room = width - width_of(end) - 4
    gap = "   "
    if 0 < sum(map(width_of, parts)) + 3 * (len(parts) - 1) - room <= len(parts) - 1:
        gap = "  "  # with a little less between them all fit
    return spread(fit(line("  ", *first_that_fit(parts, room, gap)), width), end, width)


def question_line(width: int) -> Line:
    """What a question takes, in place of the keys."""
    return fit(line("  ", Span("y", "accent"), " yes   ", Span("n Esc", "accent"), " no"), width)


def prompt_line(typed: str, width: int, position: str = "") -> Line:
    """What is being typed, in place of the keys."""
    start = line("  ", Span("/", "accent"), typed, Span(" ", "cursor"))
    hint = Span("Enter keeps it, Esc takes it away", "dim")
    end = line(Span(position, "dim"), " ") if position else ()
    if width_of(start) + width_of(hint.text) + width_of(end) + 4 <= width:
        start = (*start, Span("   "), hint)
    return spread(start, end, width)
