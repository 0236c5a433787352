"""The end of a step, where the loop says so itself: ``Agent.end_step``."""

from typing import Any, ClassVar

import torch

from rankscope.agent import events, switch
from rankscope.agent.probes.base import Probe

MAX_TOKENS = 1 << 40
"""More in one step of one rank is a mistake; summed over all ranks and steps it must stay exact."""


class Step(Probe):
    name: ClassVar[str] = "step"
    guarded: ClassVar[tuple[str, ...]] = ("on_end_step",)

    __slots__ = ("called",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.called = False
        """Whether ``end_step`` was ever called: then the optimizer's steps end no step."""

    def on_end_step(self, now: float, loss: Any, tokens: Any) -> None:
        self.called = True
        given = None
        if loss is not None:
            probe = self.observer.loss
            if probe.on:
                try:  # as ``ask`` does it, with fewer lines of code to fetch
                    given = probe.given(loss)
                except Exception as error:
                    if switch.is_users(error):
                        raise
                    self.observer.fault(probe, error)
        self.observer.note_step(events.END_STEP, now, given, _count(tokens))


def _count(tokens: Any) -> int | None:
    """A token count as a number, where it can be had without waiting for a device."""
    if tokens is None or type(tokens) is int:
        return None if tokens is None else max(0, min(MAX_TOKENS, tokens))
    if isinstance(tokens, torch.Tensor) and tokens.device.type != "cpu":
        return None
    try:
        return max(0, min(MAX_TOKENS, int(tokens)))
    except (TypeError, ValueError, OverflowError):  # a word, NaN: no count
        return None
