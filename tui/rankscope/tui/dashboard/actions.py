"""Everything a user can do, once: keys, command palette, footer and help all come from here."""

from dataclasses import dataclass, replace
from typing import Literal

ScreenName = Literal[
    "overview", "ranks", "rank", "collectives", "numerics", "memory", "stacks", "evidence", "help"
]
Group = Literal["screens", "moving", "dashboard"]

SCREENS: tuple[ScreenName, ...] = (
    *("overview", "ranks", "rank", "collectives", "numerics", "memory", "stacks", "evidence"),
    "help",
)
GROUPS: dict[Group, str] = {
    "screens": "Screens",
    "moving": "Moving about",
    "dashboard": "The dashboard",
}

KEY_NAMES = {
    "question_mark": "?",
    "exclamation_mark": "!",
    "colon": ":",
    "escape": "Esc",
    "enter": "Enter",
    "ctrl+c": "Ctrl-C",
    "ctrl+d": "Ctrl-D",
    "ctrl+l": "Ctrl-L",
    "ctrl+p": "Ctrl-P",
    "ctrl+u": "Ctrl-U",
    "f1": "F1",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "space": "Space",
}
"""How Textual's names of keys are written on screen."""


@dataclass(frozen=True)
class Action:
    """One thing a user can do."""

    name: str
    """What the app calls: ``name`` of its ``action_…`` methods, with arguments."""
    keys: tuple[str, ...]
    """Textual's names of keys; the first is the one shown in the footer."""
    label: str
    """One word or two for the footer and the palette."""
    help: str
    """One sentence."""
    group: Group
    footer: tuple[ScreenName, ...] = ()
    """The screens whose footer shows it, in the order of the registry."""
    palette: bool = True

    @property
    def key_text(self) -> str:
        return key_text(self.keys[0])

    @property
    def all_keys_text(self) -> str:
        return " ".join(key_text(key) for key in self.keys)


def key_text(key: str) -> str:
    """``key`` as it is written on screen."""
    return KEY_NAMES.get(key, key)


# Ctrl-Z means nothing on purpose: under `rankscope run` and `make demo` this process has relatives
# in its process group, and stopping some or all of them would hang a terminal or a training run.
ACTIONS: tuple[Action, ...] = (
    Action(
        "go('help')",
        ("question_mark", "f1"),
        "help",
        "Show all keys and what the marks mean.",
        "screens",
        footer=(
            *("overview", "ranks", "rank", "collectives", "numerics", "memory", "stacks"),
            "evidence",
        ),
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
        "Go back to where you came from.",
        "screens",
        footer=("ranks", "rank", "collectives", "numerics", "memory", "stacks", "evidence", "help"),
        palette=False,
    ),
    Action(
        "go('overview')",
        ("1",),
        "overview",
        "The run in one screen: verdict, speed, every rank, checkpoint.",
        "screens",
        footer=("ranks", "rank", "collectives", "numerics", "memory", "stacks", "evidence", "help"),
    ),
    Action(
        "go('ranks')",
        ("2",),
        "ranks",
        "The table of ranks.",
        "screens",
        footer=(
            *("overview", "rank", "collectives", "numerics", "memory", "stacks", "evidence"),
            "help",
        ),
    ),
    Action(
        "go('collectives')",
        ("3",),
        "collectives",
        "Process groups: who is behind, and in what the others wait.",
        "screens",
        footer=("overview", "ranks", "rank", "numerics", "stacks", "evidence"),
    ),
    Action(
        "go('numerics')",
        ("4",),
        "numerics",
        "Each rank's own gradients over time, and where a NaN came from.",
        "screens",
        footer=("overview", "ranks", "rank", "evidence", "help"),
    ),
    Action(
        "go('memory')",
        ("5",),
        "memory",
        "Each rank's memory over the run, how fast it grows, when it is full.",
        "screens",
    ),
    Action(
        "go('stacks')",
        ("s",),
        "stacks",
        "Where every rank is in its code, the odd one out on top.",
        "screens",
        footer=("rank", "collectives", "evidence"),
    ),
    Action(
        "go('evidence')",
        ("v",),
        "evidence",
        "What the verdict rests on, who it holds up, and the next step to take.",
        "screens",
        footer=("overview", "ranks", "rank", "collectives", "numerics", "stacks"),
    ),
    Action(
        "open",
        ("enter",),
        "open rank",
        "Open the page of the selected rank; with none selected, of the one to blame.",
        "screens",
        footer=("overview", "ranks", "numerics"),
    ),
    Action(
        "trouble",
        ("exclamation_mark",),
        "next trouble",
        "Select the next rank that is not well.",
        "moving",
        footer=("overview", "ranks", "rank", "numerics"),
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
    Action("move('last')", ("G", "end"), "last", "To the last line.", "moving", palette=False),
    Action(
        "command_palette",
        ("ctrl+p", "colon"),
        "palette",
        "Find an action by its name.",
        "dashboard",
        palette=False,
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
