"""Ending a run that may hang, be stopped or hold the GIL: nothing of it is left."""

from rankscope.tui.launcher.child import Child, kill

ENDS_WITHIN_S = 15.0


def end(child: Child) -> int:
    """Kill the ranks and end their launcher; its exit code. At once, if it has ended."""
    kill(child.ranks())  # SIGKILL also ends ranks that are stopped or never return to Python
    return child.end(ENDS_WITHIN_S)
