"""Every probe there is: the one list of them."""

from typing import ClassVar

from rankscope.agent.probes.backward import Backward
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.collectives import Collectives
from rankscope.agent.probes.exceptions import Exceptions
from rankscope.agent.probes.facts import Facts
from rankscope.agent.probes.gradnorm import GradNormProbe
from rankscope.agent.probes.loader import Loader
from rankscope.agent.probes.loss import Loss
from rankscope.agent.probes.memory import MemoryProbe
from rankscope.agent.probes.modules import Modules
from rankscope.agent.probes.optimizer import Optimizer


class StepProbe(Probe):
    """``end_step`` itself: its body is the observer's, its faults are kept apart like any other."""

    name: ClassVar[str] = "step"
    guarded: ClassVar[tuple[str, ...]] = ("on_end_step",)

    def on_end_step(self, loss: object, tokens: object) -> None:
        self.observer.end_step(loss, tokens)


PROBES: tuple[type[Probe], ...] = (
    Modules,
    Backward,
    GradNormProbe,  # before the optimizer's own hooks: its kernel is no optimizer time
    Optimizer,
    Loader,
    Loss,
    StepProbe,
    MemoryProbe,
    Collectives,
    Facts,
    Exceptions,
)
