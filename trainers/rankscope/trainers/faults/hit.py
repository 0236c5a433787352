"""One fault on one rank: what it has at hand to do its harm and to say so."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch.optim import Optimizer

from rankscope.protocol.faults import Fault, Spec
from rankscope.trainers.config import Config
from rankscope.trainers.faults.points import Points
from rankscope.trainers.faults.truth import Log
from rankscope.trainers.launch import Place
from rankscope.trainers.parallel import Parallel

DWELL_S = 0.4
"""How long a rank that falls silent of a sudden stays where it is before: an observer that listens
six times a second can know no better where that was."""


class Struck(Protocol):
    """What faults that need nothing of the trainer have at hand."""

    @property
    def spec(self) -> Spec: ...

    @property
    def here(self) -> bool:
        """Whether it is this rank that goes wrong."""
        ...

    def tell(self, **where: str | int) -> None:
        """Say in the fault log what is about to happen."""
        ...

    def in_phase(self, action: Callable[[str], None], *, default: str = "forward") -> None:
        """Do ``action`` on the rank in the step, in the phase of ``where``."""
        ...


@dataclass
class Site:
    """A run on this rank, as far as faults may change it."""

    config: Config
    place: Place
    trainer: str
    parallel: Parallel
    optimizer: Optimizer
    points: Points
    log: Log
    at_end: list[Callable[[], None]]
    """Done after the step loop, before the ranks leave together."""
    in_save: list[Callable[[str, int], None]] = field(default_factory=list)
    """Called with each phase of a save and its step; what they raise fails the save."""


@dataclass(frozen=True)
class Hit:
    """The fault ``spec`` as this rank meets it."""

    site: Site
    spec: Spec
    fault: Fault

    @property
    def here(self) -> bool:
        """Whether it is this rank that goes wrong."""
        return self.site.place.rank == self.spec.rank

    @property
    def sharded(self) -> bool:
        return self.site.trainer == "FSDP2"

    def other(self) -> int:
        """The rank that is copied: that of ``where``, else the first other one."""
        if self.spec.where:
            return int(self.spec.where)
        return 1 if self.spec.rank == 0 else 0

    def blamed(self) -> list[int]:
        """The ranks that are to be named."""
        blame, rank = self.fault.blame, self.spec.rank
        if blame == "nobody":
            return []
        if blame == "pair":
            return sorted({rank, self.other()})
        if blame == "others":
            return [other for other in range(self.site.place.world_size) if other != rank]
        return [rank]

    def tell(self, **where: str | int) -> None:
        """Say in the fault log what is about to happen."""
        kind, step = self.fault.kinds[0], self.site.points.step
        self.site.log.write(self.spec, self.blamed(), step, kind, where)

    def in_phase(self, action: Callable[[str], None], *, default: str = "forward") -> None:
        """Do ``action`` on the rank in the step, in the phase of ``where``."""
        phase = self.spec.where or default
        if self.here:
            self.site.points.once(phase, self.spec.step, lambda: action(phase))


def dwell() -> None:
    time.sleep(DWELL_S)
