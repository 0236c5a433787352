"""The runs there are, as ``rankscope ls`` lists them."""

from pathlib import Path
from typing import Literal

import msgspec

from rankscope.protocol.exits import UserError
from rankscope.protocol.rundir import RunDirectory, hub_is_alive, list_runs
from rankscope.protocol.shapes import SEVERITIES, Finding, Incident, Severity

LOG_TAIL_BYTES = 256 * 1024
"""So much of an incident log is read for its verdict."""
NO_VERDICT = frozenset({"command", "stalled"})
"""Kinds of entries that are no finding."""


class ListedRun(msgspec.Struct):
    """One run directory.

    ``live``: its hub runs and it has not ended; ``ended``: it has, whether or not its hub still
    serves it; ``stale``: its hub is gone without a word, or never was; ``unreadable``: see
    ``note``.
    """

    run: str
    state: Literal["live", "ended", "stale", "unreadable"]
    name: str
    created_s: float | None
    ended_s: float | None
    exit_code: int | None
    world_size: int | None
    endpoint: str | None
    command: list[str]
    path: str
    note: str = ""
    severity: Severity | None = None
    """Of the gravest finding that is open, or was at the end; None when there is none."""
    headline: str = ""
    """That finding in a sentence."""


def listed(home: Path) -> list[ListedRun]:
    """All runs below ``home``, newest first."""
    return [_one(directory) for directory in list_runs(home)]


def _one(directory: RunDirectory) -> ListedRun:
    try:
        directory.check()
        info = directory.read_info()
    except UserError as error:
        return ListedRun(
            *(directory.run, "unreadable", "", None, None, None, None, None, []),
            path=str(directory.path),
            note=str(error),
        )
    served = hub_is_alive(info)
    worst = gravest_open(directory.incidents)
    return ListedRun(
        run=info.run,
        state="ended" if info.ended_s is not None else ("live" if served else "stale"),
        name=info.name,
        created_s=info.created_s,
        ended_s=info.ended_s,
        exit_code=info.exit_code,
        world_size=info.world_size,
        endpoint=info.endpoint if served else None,
        command=info.command,
        path=str(directory.path),
        severity=None if worst is None else worst.severity,
        headline="" if worst is None else worst.headline,
    )


def gravest_open(log: Path) -> Finding | None:
    """The gravest finding of an incident log that has not closed; the first of equals.

    A log that is not there, or a line that cannot be read, tells nothing.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).split(b"\n")
    except OSError:
        return None
    open_: dict[str, Finding] = {}
    for line in lines:
        try:
            incident = msgspec.json.decode(line, type=Incident)
        except (msgspec.DecodeError, UnicodeDecodeError):  # cut off, or of another version
            continue
        if incident.finding.kind in NO_VERDICT:
            continue
        if incident.event == "opened":
            open_[incident.id] = incident.finding
        else:
            open_.pop(incident.id, None)
    ranked = sorted(open_.values(), key=lambda one: -SEVERITIES.index(one.severity))
    return ranked[0] if ranked else None
