"""The global gradient norm of a step: what ``clip_grad_norm_`` returned, else one fused kernel.

Taken from clipping it costs nothing and is the norm before clipping. Without clipping it is
``torch._foreach_norm`` over the gradients that the optimizer is about to use; where even that is
dear it is done at every second, fourth, … step. No collective and no device synchronisation: of a
sharded gradient (DTensor) the local shard is taken, and the hub combines the ranks' squares; a
gradient that R ranks hold alike goes in with weight 1/R then.
"""

import functools
import math
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.loss import Scalar
from rankscope.agent.probes.pace import Pace
from rankscope.agent.tracing import recorded

COST_SHARE = 0.0005
"""The share of a step's time that the norm may take, on average."""

FREE_S = 0.0001
"""A norm that takes less is computed at every step."""

MAX_EVERY = 32


class GradNorm(NamedTuple):
    value: Scalar
    sharded: bool


class GradNormProbe(Probe):
    name: ClassVar[str] = "gradnorm"
    guarded: ClassVar[tuple[str, ...]] = ("on_clipped", "on_step")

    __slots__ = ("_pace", "_steps", "found")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.found: GradNorm | None = None
        """The norm of the step in work, until who ends the step takes it."""
        self._steps = 0
        # Intervals are counted from the first step, so that ranks with different costs still have
        # steps in common, which the hub needs to combine shards.
        self._pace = Pace(share=COST_SHARE, free_s=FREE_S, max_every=MAX_EVERY)
        self._clips: list[tuple[Any, str, Any, Any]] = []
        observer.update_begins.append((self, self.on_step))

    def install(self) -> None:
        clipped = self.observer.guard(self, self.on_clipped)
        wrappers: dict[Any, Any] = {}
        places: tuple[Any, ...] = (torch.nn.utils, torch.nn.utils.clip_grad)
        for place in places:
            original = place.clip_grad_norm_
            if original not in wrappers:
                wrappers[original] = _wrap(original, clipped)
            self._clips.append((place, "clip_grad_norm_", original, wrappers[original]))
            place.clip_grad_norm_ = wrappers[original]

    def uninstall(self) -> None:
        for place, name, original, wrapper in self._clips:
            if getattr(place, name) is wrapper:
                setattr(place, name, original)
        self._clips.clear()
        self._pace.rest()

    def on_clipped(self, now: float, total_norm: Any, args: Any, kwargs: Any) -> None:
        """``clip_grad_norm_(parameters, max_norm, norm_type)`` returned ``total_norm``."""
        norm_type = args[2] if len(args) > 2 else kwargs.get("norm_type", 2.0)
        if float(norm_type) == 2.0 and self.found is None and not recorded():
            self.found = _of_total(total_norm)
            self.observer.kernel_s += time.monotonic() - now

    def on_step(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The optimizer is about to use its gradients."""
        steps = self._steps = self._steps + 1
        if steps % self._pace.every or self.found is not None or recorded():
            return
        began_s = time.thread_time()
        self.found = local_norm(
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        )
        self.observer.kernel_s += time.monotonic() - now
        self._pace.took(steps, now, time.thread_time() - began_s)


def _wrap(original: Any, clipped: Any) -> Any:
    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        total_norm = original(*args, **kwargs)
        clipped(total_norm, args, kwargs)
        return total_norm

    return clip_grad_norm_


def _of_total(total_norm: Any) -> GradNorm | None:
    """What clipping returned. Of FSDP2's DTensor the local part is the norm of the local shard."""
    if not isinstance(total_norm, torch.Tensor):
        return None
    placements = getattr(total_norm, "placements", None)
    sharded = placements is not None and not all(place.is_replicate() for place in placements)
    with torch.no_grad():
        value = _scalar(total_norm if placements is None else _local(total_norm))
        if value is not None and sharded:
            value = value * math.sqrt(_weight(total_norm))
    return None if value is None else GradNorm(value, sharded)


def _scalar(tensor: torch.Tensor) -> Scalar | None:
    if tensor.device.type == "cpu":
        return float(tensor.item())
    return tensor.to(torch.float32, copy=True) if tensor.device.type == "cuda" else None


def local_norm(gradients: Iterable[torch.Tensor]) -> GradNorm | None:
    """The L2 norm of the parts of ``gradients`` that this rank holds.

    None when there are none, when one is sparse, or when they lie on several devices or one that
    could not be read without waiting.
    """
    parts: defaultdict[tuple[torch.device, bool, float], list[torch.Tensor]] = defaultdict(list)
    sharded = False
    with torch.no_grad():
        for gradient in gradients:
            weight = 1.0
            if hasattr(gradient, "placements"):
                sharded = True
                weight = _weight(gradient)
                gradient = _local(gradient)
            if gradient.layout is not torch.strided:
                return None
            if gradient.numel():
                wide = gradient.dtype is torch.float64
                parts[(gradient.device, wide, weight)].append(gradient)
        if not parts or len({device for device, _, _ in parts}) > 1:
            return GradNorm(0.0, sharded) if sharded and not parts else None
        device = next(iter(parts))[0]
        if device.type not in ("cpu", "cuda"):
            return None
        totals = []
        for (_, wide, weight), tensors in parts.items():
            norms = torch._foreach_norm(tensors, 2, dtype=None if wide else torch.float32)
            norm = torch.linalg.vector_norm(torch.stack(norms)).to(torch.float64 if wide else None)
            if device.type == "cpu" and not wide and torch.isinf(norm):
                norm = _wide_norm(tensors)  # squares above 1e38 overflow before the sum does
            totals.append(norm * math.sqrt(weight))
        value = _scalar(
            totals[0] if len(totals) == 1 else torch.linalg.vector_norm(torch.stack(totals))
        )
    return None if value is None else GradNorm(value, sharded)


def _wide_norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    norms = [torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in tensors]
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


def _local(tensor: Any) -> torch.Tensor:
    local: torch.Tensor = tensor.to_local()
    return local


def _weight(tensor: Any) -> float:
    """1 / (the number of ranks that hold the same part), so that squares may be summed."""
    copies = 1
    for dimension, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            copies *= tensor.device_mesh.size(dimension)
    return 1.0 / copies
