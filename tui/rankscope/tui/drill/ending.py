"""Ending a run that may hang, be stopped or hold the GIL: nothing of it is left."""

import contextlib

import psutil

from rankscope.tui.launcher.child import Child

ENDS_WITHIN_S = 15.0


def end(child: Child) -> int:
    """Kill the ranks and end their launcher; its exit code. At once, if it has ended."""
    ranks: list[psutil.Process] = []
    if child.poll() is None:
        # Only its own children: a rank's sentinel ends by itself when it hears that the run is
        # over. SIGKILL also ends ranks that are stopped or that never return to Python.
        with contextlib.suppress(psutil.Error):
            ranks = psutil.Process(child.pid).children()
        for rank in ranks:
            with contextlib.suppress(psutil.Error):
                rank.kill()
    return child.end(ENDS_WITHIN_S)
