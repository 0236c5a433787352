"""The node directory as the sentinel sees it: new registrations, and tidying up at the end."""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from rankscope.agent import nodedir
from rankscope.agent.nodedir import Registration
from rankscope.protocol.exits import UserError

FRESH_NS = 1_000_000_000
"""A folder changed less than this ago is read again: two changes can share one time stamp."""


class Registry:
    """Reads the registrations again only when the folder has changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ranks = str(directory / "ranks")
        self._read_ns = -1
        self._seen: set[Registration] = set()

    def new(self, unix_ns: int) -> list[Registration]:
        """Registrations that were not there before, by attempt and rank.

        A rank that registers again with another pid (or start) counts as new.
        """
        try:
            changed_ns = os.stat(self._ranks).st_mtime_ns  # noqa: PTH116
            if changed_ns == self._read_ns and unix_ns - changed_ns > FRESH_NS:
                return []
            found = nodedir.read_registrations(self._directory)
        except (OSError, UserError):  # not made yet, or removed
            return []
        self._read_ns = changed_ns
        new = [one for one in found if one not in self._seen]
        self._seen.update(new)
        return new

    def tidy(self, ended: Collection[Registration] | None) -> None:
        """Remove the registrations of ``ended`` processes; None: the run is over, remove all.

        One that was made a moment ago, and that nobody has looked at yet, stays.
        """
        left = False
        with contextlib.suppress(OSError, UserError):
            for one in nodedir.read_registrations(self._directory):
                if ended is None or one in ended:
                    path = nodedir.registration_path(self._directory, one.attempt, one.rank)
                    path.unlink(missing_ok=True)
                else:
                    left = True
        leader = nodedir.leader_lock_path(self._directory)
        with contextlib.suppress(OSError):
            if not left and not nodedir.is_locked(leader):
                leader.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folders where they are empty."""
        with contextlib.suppress(OSError):
            (self._directory / "ranks").rmdir()
            self._directory.rmdir()
