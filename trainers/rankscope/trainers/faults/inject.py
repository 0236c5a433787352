"""Putting the faults of the command line into a run on this rank."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch.optim import Optimizer

from rankscope.protocol import faults
from rankscope.protocol.faulttable import FAULTS
from rankscope.trainers.config import Config
from rankscope.trainers.data import Data
from rankscope.trainers.faults.catalogue import INSTALL
from rankscope.trainers.faults.hit import Hit, Site
from rankscope.trainers.faults.points import Points, Window
from rankscope.trainers.faults.truth import Log
from rankscope.trainers.launch import Place
from rankscope.trainers.parallel import Parallel


@dataclass(frozen=True)
class Hurt:
    """What the step loop is given instead of what it would have had."""

    parallel: Parallel
    data: Data
    windows: Callable[[Iterator[Window]], Iterator[Window]]
    in_save: list[Callable[[str, int], None]]


@contextmanager
def inject(
    config: Config,
    place: Place,
    trainer: str,
    parallel: Parallel,
    optimizer: Optimizer,
    data: Data,
) -> Iterator[Hurt]:
    """A run of ``trainer`` (``DDP`` or ``FSDP2``) with ``config.fault``, which was checked.

    To be entered by all ranks, for some faults need a process group of their own.
    """
    points = Points(parallel, optimizer, data)
    site = Site(
        config, place, trainer, points.parallel, optimizer, points, Log(config.fault_log), []
    )
    for text in config.fault:
        spec = faults.parse(text, FAULTS)
        INSTALL[spec.name](Hit(site, spec, faults.find(spec.name, FAULTS)))
    points.on("end", lambda: site.log.over(points.step))
    yield Hurt(site.parallel, points.data, points.windows, site.in_save)
    for action in site.at_end:
        action()
