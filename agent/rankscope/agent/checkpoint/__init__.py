"""Coordinated checkpoints: what all ranks save at one boundary, verified before it counts."""

from rankscope.agent.checkpoint.checkpointer import Checkpointer
from rankscope.agent.checkpoint.meeting import Outcome
from rankscope.agent.checkpoint.resume import Resumed

__all__ = ["Checkpointer", "Outcome", "Resumed"]
