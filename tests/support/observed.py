"""An observer and its digest in the test's own process: real hooks on real modules, no thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rankscope.agent.clock.phases import Phases
from rankscope.agent.digest import Digest
from rankscope.agent.observer import Observer
from rankscope.agent.outbox import Outbox
from rankscope.protocol.messages import FromRank, ProbeFault, StepRecord


class Observed:
    """What the probes noted, as the sending thread would work it out."""

    def __init__(self) -> None:
        self.observer = Observer()
        self.outbox = Outbox()
        self.phases = Phases(0.0)
        self.digest = Digest(self.phases, self.outbox)
        self.events: list[Any] = []
        guard, step = self.observer.guard, self.observer.step
        self.end_step = guard(step, step.on_end_step)

    def read(self) -> "Observed":
        noted = self.observer.noted
        self.events += noted
        self.digest.feed(list(noted))
        noted.clear()
        return self

    @property
    def steps(self) -> list[StepRecord]:
        return list(self.read().outbox.steps())

    @property
    def urgent(self) -> list[tuple[type[FromRank], dict[str, Any]]]:
        return list(self.read().outbox._urgent)

    @property
    def faults(self) -> list[str]:
        return [fields["probe"] for kind, fields in self.urgent if kind is ProbeFault]


@contextmanager
def observed(*pairs: tuple[Any, Any]) -> Iterator[Observed]:
    """Watch (model, optimizer) pairs as ``attach`` does; every hook is gone afterwards."""
    torch.set_num_threads(1)
    seen = Observed()
    seen.observer.install()
    try:
        for model, optimizer in pairs:
            seen.observer.watch(model, optimizer)
        yield seen
    finally:
        seen.observer.uninstall()
