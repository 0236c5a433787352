"""Everything a user can do, once: keys, command palette, footer and help all come from here."""

from dataclasses import replace

from rankscope.tui.dashboard.action import SCREENS, Action, ScreenName
from rankscope.tui.dashboard.controlactions import CONTROL_ACTIONS
from rankscope.tui.dashboard.timeactions import TIME_ACTIONS


def but(*names: ScreenName) -> tuple[ScreenName, ...]:
    """All screens but these."""
    return tuple(name for name in SCREENS if name not in names)


LISTS: tuple[ScreenName, ...] = ("ranks", "numerics", "steps", "incidents", "runs")
"""Screens of lines that can be selected or left out."""


SCREEN_ACTIONS: tuple[Action, ...] = (
    Action(
        "go('help')",
        ("question_mark", "f1"),
        "help",
        "Show all keys and what the marks mean.",
        "screens",
        footer=but("help"),
    ),
    Action(
        "leave",
        ("q",),
        "quit",
        "Leave the dashboard; the run goes on.",
        "dashboard",
        footer=SCREENS,
    ),
    Action(
        "go_back",
        ("escape",),
        "back",
        "Go back to where you came from; first take a filter away.",
        "screens",
        footer=but("overview"),
        palette=False,
    ),
    Action(
        "go('overview')",
        ("1",),
        "overview",
        "The run in one screen: verdict, speed, every rank, checkpoint.",
        "screens",
        footer=("rank", "collectives", "memory", "stacks", "evidence", "help"),
    ),
    Action(
        "go('ranks')",
        ("2",),
        "ranks",
        "The table of ranks.",
        "screens",
        footer=("overview", "rank", "collectives", "memory", "stacks", "evidence", "help"),
    ),
    Action(
        "go('collectives')",
        ("3",),
        "collectives",
        "Process groups: who is behind, and in what the others wait.",
        "screens",
        footer=("overview", "stacks", "evidence"),
    ),
    Action(
        "go('numerics')",
        ("4",),
        "numerics",
        "Each rank's own gradients over time, and where a NaN came from.",
        "screens",
        footer=("overview", "evidence"),
    ),
    Action(
        "go('memory')",
        ("5",),
        "memory",
        "Each rank's memory over the run, how fast it grows, when it is full.",
        "screens",
    ),
    Action(
        "go('steps')",
        ("6",),
        "steps",
        "Phases, waiting and step times over the newest steps, and who is late.",
        "screens",
        footer=("rank",),
    ),
    Action(
        "go('incidents')",
        ("7",),
        "incidents",
        "The incident log: every finding as it opened and closed, the newest on top.",
        "screens",
        footer=("evidence",),
    ),
    Action(
        "go('checkpoints')",
        ("8",),
        "checkpoints",
        "How far a save is on each rank, what came of earlier ones, and the commands.",
        "screens",
    ),
    Action(
        "go('runs')",
        ("9",),
        "runs",
        "All runs on this machine; Enter opens one.",
        "screens",
    ),
    Action(
        "go('stacks')",
        ("s",),
        "stacks",
        "Where every rank is in its code, the odd one out on top.",
        "screens",
        footer=("rank", "collectives", "steps", "evidence"),
    ),
    Action(
        "go('evidence')",
        ("v",),
        "evidence",
        "What the verdict rests on, who it holds up, and the next step to take.",
        "screens",
        footer=but("evidence", "help", "runs", "incidents", "checkpoints"),
    ),
    Action(
        "open",
        ("enter",),
        "open",
        "Open the selected rank, run or finding; with no rank selected, the one to blame.",
        "screens",
        footer=("overview", *LISTS),
    ),
    Action(
        "turn(1)",
        ("tab",),
        "next screen",
        "The screen with the next digit.",
        "screens",
        footer=("overview", "collectives", "memory"),
        palette=False,
    ),
    Action(
        "turn(-1)",
        ("shift+tab",),
        "previous screen",
        "The screen with the digit before.",
        "screens",
        palette=False,
    ),
)

MOVING_ACTIONS: tuple[Action, ...] = (
    Action(
        "trouble",
        ("exclamation_mark",),
        "next trouble",
        "Select the next rank that is not well.",
        "moving",
        footer=("overview", "ranks", "rank", "numerics"),
    ),
    Action(
        "filter",
        ("slash",),
        "filter",
        "Show only lines with these words; a number is a rank, 4-7 are several. Empty: all.",
        "moving",
        footer=(*LISTS, "memory", "stacks", "evidence", "help"),
    ),
    Action(
        "find(1)",
        ("n",),
        "next match",
        "To the next line that the filter matches.",
        "moving",
        palette=False,
    ),
    Action(
        "find(-1)",
        ("N",),
        "previous match",
        "To the line before that the filter matches.",
        "moving",
        palette=False,
    ),
    Action(
        "sort",
        ("o",),
        "sort",
        "Order the table of ranks by another column, those in trouble or the largest first.",
        "moving",
        footer=("ranks",),
    ),
    Action("move('down')", ("j", "down"), "down", "One line down.", "moving", palette=False),
    Action("move('up')", ("k", "up"), "up", "One line up.", "moving", palette=False),
    Action(
        "move('left')",
        ("h", "left"),
        "left",
        "The rank to the left; on a rank's page the previous rank.",
        "moving",
        palette=False,
    ),
    Action(
        "move('right')",
        ("l", "right"),
        "right",
        "The rank to the right; on a rank's page the next rank.",
        "moving",
        palette=False,
    ),
    Action(
        "move('page_down')",
        ("pagedown", "space", "ctrl+d"),
        "page down",
        "One page down.",
        "moving",
        palette=False,
    ),
    Action(
        "move('page_up')", ("pageup", "ctrl+u"), "page up", "One page up.", "moving", palette=False
    ),
    Action("move('first')", ("g", "home"), "first", "To the first line.", "moving", palette=False),
    Action("move('last')", ("G",), "last", "To the last line.", "moving", palette=False),
)

# Ctrl-Z means nothing on purpose: under `rankscope run` and `make demo` this process has relatives
# in its process group, and stopping some or all of them would hang a terminal or a training run.
DASHBOARD_ACTIONS: tuple[Action, ...] = (
    Action(
        "command_palette",
        ("ctrl+p", "colon"),
        "palette",
        "Find an action by a few letters of its name.",
        "dashboard",
        footer=("overview", "help"),
        palette=False,
    ),
    Action(
        "copy",
        ("y",),
        "copy",
        "Copy the verdict with its evidence, or the selected run, to your own clipboard (OSC 52).",
        "dashboard",
        footer=("evidence", "runs"),
    ),
    Action(
        "write_screen",
        ("w",),
        "write to file",
        "Write the whole screen, also what is scrolled away, to a file in this folder.",
        "dashboard",
        footer=("evidence",),
    ),
    Action(
        "theme",
        ("t",),
        "theme",
        "Change the look: colours, strong colours without dim text, no colours.",
        "dashboard",
    ),
    Action(
        "redraw",
        ("ctrl+l",),
        "redraw",
        "Draw the whole screen anew, after something else wrote on it.",
        "dashboard",
    ),
    Action(
        "interrupt",
        ("ctrl+c",),
        "interrupt",
        "Leave at once, with exit code 130; the run goes on.",
        "dashboard",
        palette=False,
    ),
)

ACTIONS: tuple[Action, ...] = (
    *SCREEN_ACTIONS,
    *MOVING_ACTIONS,
    *CONTROL_ACTIONS,
    *TIME_ACTIONS,
    *DASHBOARD_ACTIONS,
)


ENDING_THE_RUN: dict[str, tuple[str, str]] = {
    "leave": ("end demo", "End the demo: the dashboard closes and the training ends."),
    "interrupt": ("interrupt", "End the demo at once, with exit code 130."),
}
"""Label and help of what leads out, where the run ends with its dashboard."""


def actions(ends_run: bool = False) -> tuple[Action, ...]:
    """The registry; ``ends_run``: as it reads where the run ends with the dashboard."""
    if not ends_run:
        return ACTIONS
    return tuple(
        replace(action, label=said[0], help=said[1])
        if (said := ENDING_THE_RUN.get(action.name))
        else action
        for action in ACTIONS
    )


def footer_actions(screen: ScreenName, ends_run: bool = False) -> list[Action]:
    """What the footer of ``screen`` shows, the most important first."""
    return [action for action in actions(ends_run) if screen in action.footer]
