"""The help, made from the registry of actions and from the marks themselves."""

from rankscope.tui.dashboard.action import GROUPS
from rankscope.tui.dashboard.actions import actions
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, line, paragraph, wrap
from rankscope.tui.words.blame import BLAMED, SUSPECT, UNKNOWN, WAITING
from rankscope.tui.words.marks import Mark

KEYS_WIDTH = 20

MARKS = (
    (Mark("●", "at work", "good"), "it is heard of and moves"),
    (Mark("◌", "starting", "quiet"), "it has called attach(…) and begun no step"),
    (WAITING, "held up by another rank, or stalled with all"),
    (Mark("◌", "silent", "warn"), "nothing heard of it for a while"),
    (SUSPECT, "named by a warning"),
    (Mark("◐", "stopped", "bad"), "its process is stopped (SIGSTOP)"),
    (BLAMED, "named by the verdict, gone, or ended badly"),
    (UNKNOWN, "no hub is there to say how it is"),
    (Mark("■", "ended", "quiet"), "ended: well, or because of another rank, as its word says"),
)

FIGURES = (
    (
        "agent cost",
        "the agent's own time on the training thread, a step, the mean of ranks: its bookkeeping, "
        "and reading gradients and other numbers. Part of it is the same for any step: a few per "
        "cent of one of some milliseconds, one or two of a long one",
    ),
    (
        "dropped",
        "records that ranks have thrown away because they could not leave in time, as while the "
        "hub is away: training waits for none",
    ),
    ("missed", "messages of a rank that left and never came to the hub"),
)

NOTES = (
    "The mouse is left to your terminal, so that selecting and copying work as usual, also over "
    "SSH. Colours are your terminal's own sixteen; NO_COLOR=1 goes without. A locale without "
    "UTF-8 gets ASCII signs: LC_ALL=C.UTF-8 brings the others back.",
)
ONLY_LOOKS = (
    "Until commands are unlocked the dashboard only looks. Closing it, in whatever way, does "
    "nothing to the run."
)
ENDS_RUN = (
    "This is a demo: its training ends when the dashboard is closed. A dashboard over a run of "
    "your own (rankscope top) only looks, and closing it does nothing to the run."
)


def help_lines(width: int, ends_run: bool = False) -> list[Line]:
    lines: list[Line] = []
    known = actions(ends_run)
    for group, title in GROUPS.items():
        if all(action.group != group for action in known):
            continue
        lines += [BLANK] if lines else []
        lines.append(line("  ", Span(title, "accent")))
        for action in known:
            if action.group != group:
                continue
            head = Span(action.all_keys_text, "strong")
            lines += paragraph(head, KEYS_WIDTH, action.help, width, indent=4)
    lines += [BLANK, line("  ", Span("Marks of a rank", "accent"))]
    for mark, meaning in MARKS:
        head = Span(f"{mark.glyph} {mark.word}", TONE_STYLES[mark.tone])
        lines += paragraph(head, KEYS_WIDTH, meaning, width, indent=4)
    lines += [BLANK, line("  ", Span("Figures", "accent"))]
    for name, meaning in FIGURES:
        lines += paragraph(Span(name, "strong"), KEYS_WIDTH, meaning, width, indent=4)
    for note in (*NOTES, ENDS_RUN if ends_run else ONLY_LOOKS):
        lines.append(BLANK)
        lines += [line("  ", Span(each, "dim")) for each in wrap(note, width - 4, 8)]
    return lines
