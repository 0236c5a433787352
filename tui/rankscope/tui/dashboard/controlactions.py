"""The commands that act on the run, for the registry. What each does is said in ``control``."""

from rankscope.tui.dashboard.action import Action

CONTROL_ACTIONS: tuple[Action, ...] = (
    Action(
        "unlock",
        ("u",),
        "unlock",
        "Allow commands on the run, or forbid them again; nothing is sent yet.",
        "control",
        footer=("checkpoints",),
    ),
    Action(
        "command('checkpoint')",
        ("c",),
        "checkpoint",
        "Have all ranks save at the same step, while they train on.",
        "control",
        footer=("checkpoints", "overview"),
    ),
    Action(
        "command('checkpoint-and-stop')",
        ("C",),
        "save and stop",
        "Have all ranks save, and end their loop once the checkpoint is there.",
        "control",
        footer=("checkpoints",),
    ),
    Action(
        "command('pause')",
        ("P",),
        "pause",
        "Have all ranks wait at the same step.",
        "control",
    ),
    Action(
        "command('resume')",
        ("R",),
        "resume",
        "Have paused ranks go on.",
        "control",
    ),
    Action(
        "command('stop')",
        ("S",),
        "stop the run",
        "Have all ranks end their loop at the same step, without saving.",
        "control",
    ),
    Action(
        "command('cancel')",
        ("X",),
        "cancel",
        "Give up the command that is in work.",
        "control",
        footer=("checkpoints",),
    ),
)
