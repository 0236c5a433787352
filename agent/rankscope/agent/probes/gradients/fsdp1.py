"""FSDP1: a unit's gradients are one flat tensor, this rank's own until the unit's hook reduces it.

Autograd accumulates it into the unit's flat parameter, whole at that moment, and a hook of ours
there comes before FSDP1's. Which part is whose is written on the flat parameter.
"""

from collections.abc import Iterator
from typing import Any

from rankscope.agent.probes.gradients.accumulated import Accumulated
from rankscope.agent.probes.gradients.names import clean


def place(hooks: Accumulated, model: Any) -> set[int]:
    """Look at the units of ``model``; the ids of all parameters that they manage."""
    managed: set[int] = set()
    for prefix, flat in flat_parameters(model):
        managed.add(id(flat))
        managed.update(id(parameter) for parameter in getattr(flat, "_params", None) or ())
        if not flat.requires_grad or hooks.has(flat):
            continue
        names = [clean(f"{prefix}.{name}" if prefix else name) for name in flat._fqns]
        # Paddings between parameters have sizes of their own, and no names.
        sizes = list(getattr(flat, "_numels_with_padding", None) or flat._numels)
        padding = list(getattr(flat, "_is_padding_mask", None) or [False] * len(sizes))
        hooks.place_flat(id(model), flat, names, sizes, padding)
    return managed


def flat_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """(name of the unit, its flat parameter) of each unit of FSDP1 in ``model``."""
    for name, module in model.named_modules():
        handle = module.__dict__.get("_handle")
        flat = getattr(handle, "flat_param", None)
        if flat is not None and hasattr(flat, "_fqns"):
            yield name, flat
