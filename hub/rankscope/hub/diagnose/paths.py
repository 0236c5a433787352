"""Where the file is that a finding names, as a path that can be opened.

``where.source`` has the file's name alone: it is read in headlines, and the same on all machines.
The frames of stacks have the path as the rank's own interpreter names it.
"""

import re
from collections.abc import Iterable
from os.path import basename

import msgspec

from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

MAX_RANKS = 4
"""So many culprits, and so many victims, are asked for their stacks."""

_SOURCE = re.compile(r"(?P<name>.+):(?P<line>\d+) in (?P<function>.+)")


def with_paths(state: RunState, findings: list[Finding]) -> list[Finding]:
    """``findings``, with a line of evidence for each whose source file is known by its path."""
    return [_with_path(state, finding) for finding in findings]


def _with_path(state: RunState, finding: Finding) -> Finding:
    ranks = [*finding.ranks[:MAX_RANKS], *finding.victims[:MAX_RANKS]]
    path = path_of(state, ranks, str(finding.where.get("source", "")))
    if not path or any(path in text for text in finding.evidence):
        return finding
    told = f"{basename(path)} is {path}"  # noqa: PTH119 - a path of another machine
    first, rest = finding.evidence[:1], finding.evidence[1:]
    return msgspec.structs.replace(finding, evidence=[*first, told, *rest])


def path_of(state: RunState, ranks: Iterable[int], source: str) -> str:
    """The file of ``source`` (``file:line in function``) by the newest stacks of ``ranks``; empty
    where none has that line, or two files of one name have it."""
    found = _SOURCE.fullmatch(source)
    if found is None:
        return ""
    line, function = int(found["line"]), found["function"]
    notes = (state.stacks.newest(rank) for rank in ranks)
    threads = (thread for note in notes if note is not None for thread in note.threads)
    paths = {
        frame[0]
        for thread in threads
        for frame in state.stacks.frames_of(thread)
        if frame[1] == line and frame[2] == function and basename(frame[0]) == found["name"]  # noqa: PTH119
    }
    return paths.pop() if len(paths) == 1 else ""
