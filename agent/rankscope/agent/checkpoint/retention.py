"""Which checkpoints are taken away when there are enough newer ones."""

import logging
import shutil
from collections import Counter
from pathlib import Path

from rankscope.agent.checkpoint.notfinite import FINITE, INF, NAN
from rankscope.agent.checkpoint.publish import REMOVED
from rankscope.protocol import checkpoints

log = logging.getLogger("rankscope")


class Retention:
    """Keeps the newest ``keep`` verified checkpoints; None keeps all.

    Only checkpoints whose bytes were verified count, and an operator's neither count nor go: so
    there are never fewer than ``keep`` good ones because of bad ones that are newer. Those that
    hold NaN are counted by themselves, and so are those that hold Inf: as many are kept of each.
    """

    def __init__(self, directory: Path, keep: int | None) -> None:
        self._directory = directory
        self._keep = keep
        self._verified: set[str] = set()

    def published(self, path: Path) -> None:
        """``path`` was just written, and verified. Never raises."""
        self._verified.add(path.name)
        if self._keep is not None:
            try:
                self._retire(max(1, self._keep))
            except Exception as error:  # noqa: BLE001 - more are kept than were wanted
                log.warning("rankscope: old checkpoints were not removed: %s", error)

    def _retire(self, keep: int) -> None:
        found, _ = checkpoints.find(self._directory)
        kept: Counter[str] = Counter()
        for one in found:
            if one.trouble or one.operators:
                continue
            holds = NAN if one.spoilt else INF if one.notfinite else FINITE
            if kept[holds] < keep:
                kept[holds] += one.spoilt or self._is_verified(one.name)
                continue
            # Under another name first: a directory that is only half there must not look like one.
            doomed = self._directory / f"{REMOVED}{one.name}"
            (self._directory / one.name).rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def _is_verified(self, name: str) -> bool:
        if name not in self._verified:
            if checkpoints.verify(self._directory / name).state != "complete":
                return False
            self._verified.add(name)
        return True
