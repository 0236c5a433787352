"""What a rank says of the fault it is about to have: one JSON line for each, for a drill alone.

Another line follows when the step in which it happened is over.
"""

import inspect
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankscope.protocol.faults import Spec


class Log:
    """The file of ``--fault-log``; nothing is written without one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._told_of: set[int] = set()

    def write(
        self, spec: Spec, ranks: Sequence[int], step: int, kind: str, where: dict[str, str | int]
    ) -> None:
        """Say that a fault is about to happen in ``step``."""
        self._told_of.add(step)
        said = {
            "fault": str(spec),
            "ranks": list(ranks),
            "step": step,
            "kind": kind,
            "where": where,
            "at_s": time.time(),
            "pid": os.getpid(),
        }
        self._append(said)

    def over(self, step: int) -> None:
        """``step`` is over; this is said when a fault was told of that happened in it."""
        if step in self._told_of:
            self._told_of.remove(step)
            self._append({"ended_step": step, "at_s": time.time()})

    def _append(self, said: dict[str, Any]) -> None:
        """One line in one write, so that lines of several ranks do not mix."""
        if self._path is None:
            return
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(said).encode() + b"\n")


def place_of(function: Callable[..., Any], text: str, lines: int = 1) -> str:
    """``file:line in function`` of the line of ``function`` that has ``text`` in it.

    ``file:line-line in function`` for a loop of so many ``lines``, which may be seen in any.
    Raises ``ValueError`` if there is no such line.
    """
    function = inspect.unwrap(function)
    source, first = inspect.getsourcelines(function)
    at = next((number for number, line in enumerate(source) if text in line), None)
    if at is None:
        raise ValueError(f"{function.__qualname__} has no line with {text!r}")
    name = Path(inspect.getfile(function)).name
    line = str(first + at) if lines == 1 else f"{first + at}-{first + at + lines - 1}"
    return f"{name}:{line} in {function.__name__}"
