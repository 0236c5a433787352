"""``rankscope drill`` from outside."""

import subprocess
import sys
from pathlib import Path

from support.runs import RANKSCOPE, environment

LIMIT_S = 240.0
"""Far beyond what a drill of two faults takes."""


def drill(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """``rankscope drill ARGUMENTS``, with no terminal anywhere; its ranks start as users' do."""
    return subprocess.run(
        [*RANKSCOPE, "drill", *arguments],
        env=environment(home, PYTHON_EXEC=sys.executable),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
