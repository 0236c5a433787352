"""What an action is: a name, its keys, and its words for footer, palette and help."""

from dataclasses import dataclass
from typing import Literal

ScreenName = Literal[
    "overview",
    "ranks",
    "rank",
    "collectives",
    "numerics",
    "memory",
    "steps",
    "incidents",
    "checkpoints",
    "runs",
    "stacks",
    "evidence",
    "help",
]
Group = Literal["screens", "moving", "control", "time", "dashboard"]

SCREENS: tuple[ScreenName, ...] = (
    *("overview", "ranks", "rank", "collectives", "numerics", "memory", "steps", "incidents"),
    *("checkpoints", "runs", "stacks", "evidence", "help"),
)
BASES: tuple[ScreenName, ...] = (
    *("overview", "ranks", "collectives", "numerics", "memory", "steps", "incidents"),
    *("checkpoints", "runs"),
)
"""Screens with a digit, in its order: going to one forgets the way back."""

GROUPS: dict[Group, str] = {
    "screens": "Screens",
    "moving": "Moving about",
    "control": "Commanding the run (after u, with the operator's key)",
    "time": "Time",
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
    "slash": "/",
    "tab": "Tab",
    "shift+tab": "Shift-Tab",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
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
