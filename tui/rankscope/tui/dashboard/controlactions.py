"""The commands that act on the run, for the registry. What each does is said in ``control``."""

from rankscope.tui.dashboard.action import Action

CONTROL_ACTIONS: tuple[Action, ...] = (
    Action(
        "unlock",
        ("u",),
        "unlock",
        "Allow commands on the run, or forbid them again.",
        "control",
        footer=("checkpoints", "overview"),
    ),
    Action(
        "command('checkpoint')",
        ("c",),
        "checkpoint",
        "All ranks save at the same step and train on.",
        "control",
        footer=("checkpoints", "overview"),
    ),
    Action(
        "command('checkpoint-and-stop')",
        ("C",),
        "save and stop",
        "All ranks save, and stop once the checkpoint is there.",
        "control",
        footer=("checkpoints",),
    ),
    Action(
        "command('pause')",
        ("P",),
        "pause",
        "All ranks wait at the same step.",
        "control",
        footer=("checkpoints", "overview"),
    ),
    Action(
        "command('resume')",
        ("R",),
        "resume",
        "Paused ranks go on.",
        "control",
        footer=("checkpoints", "overview"),
    ),
    Action(
        "command('stop')",
        ("S",),
        "stop",
        "All ranks stop at the same step, without saving.",
        "control",
        footer=("checkpoints",),
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
