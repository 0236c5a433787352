"""Asking the hub's code what dump files tell, in a process of its own: they may be hostile."""

import os
import subprocess
from pathlib import Path

import msgspec

from rankscope.protocol import launch
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import Analysis

LIMIT_S = 1800.0
"""Thousands of dumps of some megabytes take minutes."""


def analysis_of(folder: Path, world_size: int | None = None) -> Analysis:
    """Raises :class:`UserError` with the reader's own words when it refuses."""
    command = [*launch.python_module("rankscope.hub.analyze"), str(folder)]
    if world_size is not None:
        command += ["--world-size", str(world_size)]
    ours, theirs = os.pipe()
    try:
        # The reader ends when this pipe closes, which it does however this process ends.
        ran = subprocess.run(command, stdin=ours, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{folder}: not read within {LIMIT_S:.0f} s; try fewer dumps", Exit.TIMED_OUT
        ) from None
    finally:
        os.close(ours)
        os.close(theirs)
    if ran.returncode == Exit.FINE:
        return msgspec.json.decode(ran.stdout, type=Analysis)
    words = ran.stderr.decode(errors="replace").strip().splitlines()
    if ran.returncode == Exit.USAGE and words:
        raise UserError(words[-1])
    raise UserError(
        f"{folder}: the reader of dumps ended with exit code {ran.returncode}"
        + (f": {words[-1]}" if words else ""),
        Exit.BUG,
    )
