"""The reduced gradient, one parameter at a time: looked at when there is a reason to.

Reasons are a gradient of this rank's own that is not finite, or so large that a sum may not be, and
a global norm that is not finite. Clipping by an infinite norm turns the elements that are not
finite into NaN and all others into 0, so the names are right afterwards, too; clipping by NaN
makes everything NaN, and nothing can be named.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch

from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.names import named_parameters
from rankscope.agent.signs import Signs
from rankscope.protocol.messages import Stage


def gradients(model: Any) -> list[tuple[str, torch.Tensor]]:
    """What this rank holds of each gradient in ``model``, by name; where it can be read at once."""
    found: list[tuple[str, torch.Tensor]] = []
    for name, parameter in named_parameters(model):
        gradient = parameter.grad
        if gradient is None:
            continue
        tensor = measure.real(gradient)
        if tensor is not None and tensor.is_cpu and tensor.numel():
            found.append((name, tensor))
    return found


def look(
    signs: Signs, named: Iterable[tuple[str, torch.Tensor]], note: str, *, clipped: bool = False
) -> bool:
    """Say which of ``named`` are not finite; whether any is not. The gradients are on a CPU.

    ``clipped``: they may have been clipped by a norm of NaN, and are all NaN then.
    """
    named = list(named)
    signs.looked(Stage.REDUCED)
    if not named:
        return False
    with torch.no_grad():
        try:
            norms = torch.stack(measure.norms([tensor for _, tensor in named])).tolist()
        except (RuntimeError, TypeError):
            norms = [float(measure.norm(tensor)) for _, tensor in named]
    bad = [(*one, norm) for one, norm in zip(named, norms, strict=True) if not math.isfinite(norm)]
    if clipped and len(bad) == len(named) and _wiped(signs, [tensor for _, tensor, _ in bad]):
        text = "; ".join(part for part in ("all of it, as clipping by NaN does", note) if part)
        signs.add(Stage.REDUCED, value="nan", note=text)
        return True
    any_bad = False
    for name, tensor, norm in bad:
        if norm != norm and not signs.wanted(Stage.REDUCED):
            signs.add(Stage.REDUCED, name, note=note)  # only counted: which elements is dear
            any_bad = True
        elif (found := measure.bad(tensor)) is not None:
            signs.add(Stage.REDUCED, name, value=found.value, count=found.elements, note=note)
            any_bad = True
    return any_bad


def _wiped(signs: Signs, tensors: list[torch.Tensor]) -> bool:
    """Whether all elements are NaN; told by one tensor where the step before was bad already."""
    looked_at = tensors[:1] if signs.repeated(Stage.REDUCED) else tensors
    return all(bool(torch.isnan(tensor).all()) for tensor in looked_at)
