"""What a trainer brings: the name, the options and the model laid out over the ranks."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.trainers.config import Config
from rankscope.trainers.launch import Place, Ranks
from rankscope.trainers.objective import loss_sum


@dataclass(frozen=True)
class Parallel:
    """A model laid out over the ranks."""

    model: nn.Module
    ranks: Ranks
    microbatch: Callable[[bool], AbstractContextManager[object]]
    """Goes around forward *and* backward of a microbatch; gradients are only reduced in the last
    one of an update, for which it is called with True."""
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext
    """Goes around forward and loss, not backward, where the operations choose their precision."""
    loss_sum: Callable[[Tensor, Tensor], Tensor] = loss_sum
    """Of logits and targets of a microbatch."""


@dataclass(frozen=True)
class Trainer:
    """What differs between the trainers, and nothing else."""

    module: str
    what: str
    add_options: Callable[[ArgumentParser], None]
    check: Callable[[Config, Namespace, Place], None]
    """Raises UserError for options that cannot work together, before any process group is made."""
    parallelise: Callable[[Config, Namespace, Place, torch.device], Parallel]
    group_when_alone: bool = False
    """Whether one plain process needs a process group too, of itself alone."""
