"""``rankscope runs``: the screen of runs as text; the same as ``rankscope ls``."""

from rankscope.tui.commands.ls import options, run

__all__ = ["HELP", "options", "run"]

HELP = "the same as ls"
