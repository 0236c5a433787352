"""``python -m support.patient MODULE ARGUMENTS``: MODULE, whose agent has time for its last words.

It has 200 ms of its own, which a busy machine may not give it; then the hub knows of an end, and
not of the last steps.
"""

import os
import runpy
import sys
from pathlib import Path

from rankscope.agent.sender import Sender

SELF = "support.patient"
TESTS = str(Path(__file__).resolve().parents[1])


def path() -> str:
    """The PYTHONPATH with which a process finds this."""
    return os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")]))


if __name__ == "__main__":
    Sender.end.__defaults__ = (30.0,)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
