"""Every probe there is: the one list of them."""

from rankscope.agent.probes.backward import Backward
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.collectives import Collectives
from rankscope.agent.probes.exceptions import Exceptions
from rankscope.agent.probes.facts import Facts
from rankscope.agent.probes.gradients.probe import Gradients
from rankscope.agent.probes.gradnorm import GradNormProbe
from rankscope.agent.probes.loader import Loader
from rankscope.agent.probes.loss import Loss
from rankscope.agent.probes.memory import MemoryProbe
from rankscope.agent.probes.modules import Modules
from rankscope.agent.probes.optimizer import Optimizer
from rankscope.agent.probes.setup import Setup
from rankscope.agent.probes.step import Step

PROBES: tuple[type[Probe], ...] = (
    Facts,
    Setup,
    Modules,
    Backward,
    Gradients,
    GradNormProbe,  # before the optimizer's own hooks: its kernel is no optimizer time
    Optimizer,
    Loader,
    Loss,
    Step,
    MemoryProbe,
    Collectives,
    Exceptions,
)
