"""Every probe there is: the one list of them."""

from rankscope.agent.probes.backward import Backward
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.collectives import Collectives
from rankscope.agent.probes.exceptions import Exceptions
from rankscope.agent.probes.facts import Facts
from rankscope.agent.probes.gradients.probe import Gradients
from rankscope.agent.probes.gradnorm import GradNormProbe
from rankscope.agent.probes.issued import Issued
from rankscope.agent.probes.loader import Loader
from rankscope.agent.probes.loss import Loss
from rankscope.agent.probes.memory import MemoryProbe
from rankscope.agent.probes.modules import Modules
from rankscope.agent.probes.numerics.forward import Forward
from rankscope.agent.probes.numerics.inputs import Inputs
from rankscope.agent.probes.numerics.lossvalue import LossValue
from rankscope.agent.probes.numerics.parameters import ParameterValues
from rankscope.agent.probes.numerics.replicas import Replicas
from rankscope.agent.probes.numerics.updates import Updates
from rankscope.agent.probes.optimizer import Optimizer
from rankscope.agent.probes.setup import Setup
from rankscope.agent.probes.statebytes import StateBytes
from rankscope.agent.probes.step import Step

PROBES: tuple[type[Probe], ...] = (
    Facts,
    Setup,
    Updates,
    Modules,
    Inputs,
    Forward,
    Backward,
    GradNormProbe,  # before the optimizer's own hooks: its kernel is no optimizer time
    Gradients,  # which asks that for the reduced norm
    Optimizer,
    Loader,
    LossValue,
    Loss,  # takes over what that has read
    ParameterValues,
    Replicas,
    Step,
    MemoryProbe,
    StateBytes,
    Collectives,
    Issued,
    Exceptions,
)
