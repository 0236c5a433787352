"""Norms of gradients that are there now: taken at once, or of a few together.

Where the call costs more than the reading (small ones; a GPU) a few are held and measured together.
Those of a CPU go to the ledger; those of a GPU are collected, and read when they have come off it.
"""

from collections.abc import Callable
from typing import Any, Final

import torch

from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.ledger import Ledger

MAX_HELD: Final = 32
MAX_ELEMENTS: Final = 1 << 18
"""Gradients are held until they are so many, or so large together (1 MiB of fp32)."""


class Measuring:
    """Of one model, in the backward in work."""

    def __init__(self, probe: Any, ledger: Ledger) -> None:
        self.probe = probe
        self.ledger = ledger
        self.cast: Callable[[], torch.dtype | None] = lambda: None
        """What the gradients of this backward are about to be cast to."""
        self.not_covered: dict[str, str] = {}
        """Parameters that could not be looked at, and why."""
        self._device: torch.device | None = None
        self._at_once = False  # nothing is held
        self._indices: list[int] = []
        self._gradients: list[torch.Tensor] = []
        self._held = 0
        self._on_device: list[tuple[list[int], torch.Tensor]] = []

    def _drop(self) -> None:
        self._indices, self._gradients, self._held = [], [], 0
        self._on_device = []

    def _hold(self, index: int, gradient: torch.Tensor) -> None:
        """Measure ``gradient`` with the next ones, or now."""
        self._indices.append(index)
        self._gradients.append(gradient)
        self._held += gradient.numel()
        # A view into DDP's bucket is reduced in place as soon as the bucket is full.
        if (
            self._held >= MAX_ELEMENTS
            or len(self._indices) >= MAX_HELD
            or self._at_once
            or gradient._is_view()
        ):
            self._measure_held()

    def _measure_held(self) -> None:
        if self._indices:
            indices, gradients = self._indices, self._gradients
            self._indices, self._gradients, self._held = [], [], 0
            self._measure(indices, gradients, self.cast())

    def _measure(
        self,
        indices: list[int],
        gradients: list[torch.Tensor],
        cast: torch.dtype | None,
        summed: bool = False,
    ) -> None:
        with torch.no_grad():
            try:
                norms = torch.stack(measure.norms(gradients))
            except (RuntimeError, TypeError):  # one of them is not what its parameter promised
                for index, gradient in zip(indices, gradients, strict=True):
                    self._measure_one(index, gradient, cast)
                return
        if norms.is_cuda:
            self._on_device.append((indices, norms))
        else:
            self.ledger.saw(indices, gradients, norms.tolist(), cast, summed)

    def _measure_one(self, index: int, gradient: Any, cast: torch.dtype | None) -> None:
        tensor = measure.real(gradient)
        if tensor is None:
            self._leave_out(index, f"{gradient.dtype} in layout {gradient.layout}")
        elif tensor.device != self._device:
            self._leave_out(index, f"on {tensor.device}")
        elif tensor.is_cuda:
            self._on_device.append(([index], measure.norm(tensor).reshape(1)))
        else:
            self.ledger.saw([index], [tensor], [float(measure.norm(tensor))], cast)

    def _leave_out(self, index: int, why: str) -> None:
        name = self.ledger.names[index]
        if name not in self.not_covered:
            self.not_covered[name] = why
            self.probe.say()
