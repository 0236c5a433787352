"""The runs there are, as ``rankscope ls`` lists them."""

import time
from pathlib import Path
from typing import Literal

import msgspec

from rankscope.protocol.exits import UserError
from rankscope.protocol.procs import is_stopped
from rankscope.protocol.rundir import RunDirectory, RunInfo, hub_is_alive, list_runs
from rankscope.protocol.shapes import SEVERITIES, Finding, Incident, Severity

STARTS_WITHIN_S = 60.0
"""A run that is younger and never had a hub is starting: on a busy machine that takes seconds."""
LOG_TAIL_BYTES = 256 * 1024
"""So much of an incident log is read for its verdict."""
STOPS = ("stop", "checkpoint-and-stop")
NO_VERDICT = frozenset({"command", "stalled"})
"""Kinds of entries that are no finding."""


class ListedRun(msgspec.Struct):
    """One run directory.

    ``starting``: it is new and its hub is not up yet; ``live``: its hub runs and it has not ended;
    ``ended``: it has, whether or not its hub still serves it; ``stale``: its hub is gone without a
    word, or never was; ``unreadable``: see ``note``.
    """

    run: str
    state: Literal["starting", "live", "ended", "stale", "unreadable"]
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
    stopped_by: str = ""
    """The operator who ended it, where one did."""
    paused_by: str = ""
    """The operator who asked for the pause that it is in, or goes into."""
    hub_stopped: int | None = None
    """The process of its hub, where that is stopped: how the run is now nobody knows."""


def listed(home: Path, now_s: float | None = None) -> list[ListedRun]:
    """All runs below ``home``, newest first; ``now_s`` is Unix time, the clock's when left out."""
    at_s = time.time() if now_s is None else now_s
    return [_one(directory, at_s) for directory in list_runs(home)]


def _one(directory: RunDirectory, now_s: float) -> ListedRun:
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
    worst, stopped_by, paused_by = last_words(directory.incidents)
    severity = None if worst is None else worst.severity
    headline = "" if worst is None else worst.headline
    if info.ended_s is not None and info.headline is not None:  # as the hub saw it at the end
        severity = next((each for each in SEVERITIES if each == info.severity), None)
        headline = info.headline
    return ListedRun(
        run=info.run,
        state=_state(info, served, now_s),
        name=info.name,
        created_s=info.created_s,
        ended_s=info.ended_s,
        exit_code=info.exit_code,
        world_size=info.world_size,
        endpoint=info.endpoint if served else None,
        command=info.command,
        path=str(directory.path),
        severity=severity,
        headline=headline,
        stopped_by=stopped_by if info.ended_s is not None else "",
        paused_by=paused_by if served and info.ended_s is None else "",
        hub_stopped=info.hub.pid if served and info.hub and is_stopped(info.hub.pid) else None,
    )


def _state(
    info: RunInfo, served: bool, now_s: float
) -> Literal["starting", "live", "ended", "stale"]:
    if info.ended_s is not None:
        return "ended"
    if served:
        return "live"
    new = info.hub is None and abs(now_s - info.created_s) < STARTS_WITHIN_S
    return "starting" if new else "stale"


def last_words(log: Path) -> tuple[Finding | None, str, str]:
    """What an incident log leaves open, the gravest finding and of equals the first; who told the
    run to stop, if anybody did; and who asked for a pause that is not over.

    A log that is not there, or a line that cannot be read, tells nothing.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).split(b"\n")
    except OSError:
        return None, "", ""
    stopped_by = ""
    pauses: dict[str, str] = {}
    open_: dict[str, Finding] = {}
    for line in lines:
        try:
            incident = msgspec.json.decode(line, type=Incident)
        except (msgspec.DecodeError, UnicodeDecodeError):  # cut off, or of another version
            continue
        command = incident.command
        if command is not None and command.command in STOPS and command.state == "done":
            stopped_by = command.author
        if command is not None and command.command == "pause" and command.state != "refused":
            pauses[incident.id] = command.author if incident.event == "opened" else ""
        if incident.finding.kind in NO_VERDICT:
            continue
        if incident.event == "opened":
            open_[incident.id] = incident.finding
        else:
            open_.pop(incident.id, None)
    ranked = sorted(open_.values(), key=lambda one: -SEVERITIES.index(one.severity))
    paused_by = next(filter(None, pauses.values()), "")
    return (ranked[0] if ranked else None), stopped_by, paused_by
