"""The runs there are, as ``rankscope ls`` lists them."""

from pathlib import Path
from typing import Literal

import msgspec

from rankscope.protocol.exits import UserError
from rankscope.protocol.rundir import RunDirectory, hub_is_alive, list_runs


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
    )
