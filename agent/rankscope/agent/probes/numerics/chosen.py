"""Which modules of a model are worth a note at each call. Pure."""

from typing import Any

import torch

from rankscope.agent.probes.gradients.names import clean, is_wrapper

CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList)
"""Are never called themselves."""


def chosen(model: Any, limit: int) -> list[tuple[str, Any]]:
    """(name, module) of up to ``limit`` modules within ``model``, the outer ones first.

    By whole levels of depth; the last level that fits in part is left out, unless it is the first.
    What is inside a compiled or scripted module is not called by Python, and left out.
    """
    levels: dict[int, list[tuple[str, Any]]] = {}
    seen: set[int] = {id(model)}
    names: set[str] = {""}
    wrapped = is_wrapper(model)

    def walk(module: Any, prefix: str, depth: int) -> None:
        if opaque(module):
            return
        for part, child in module._modules.items():
            if child is None or id(child) in seen:
                continue
            seen.add(id(child))
            path = f"{prefix}.{part}" if prefix else part
            name = clean(path, wrapped=wrapped)
            below = depth
            if name not in names and worth(child):
                names.add(name)
                levels.setdefault(depth, []).append((name, child))
                below = depth + 1
            walk(child, path, below)

    walk(model, "", 0)
    found: list[tuple[str, Any]] = []
    for depth in sorted(levels):
        if len(found) + len(levels[depth]) > limit:
            return found or levels[depth][:limit]
        found += levels[depth]
    return found


def worth(module: Any) -> bool:
    """Whether it is called itself, and does more than a function would.

    What a layer without parameters or modules spoils shows in whatever it is given to, as what a
    function spoils does: it is then told of the module around them.
    """
    if isinstance(module, CONTAINERS):
        return False
    return bool(module._modules) or any(one is not None for one in module._parameters.values())


def opaque(module: Any) -> bool:
    """Whether what ``module`` calls is compiled or scripted, as a whole."""
    if isinstance(module, torch.jit.ScriptModule):
        return True
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    forward = vars(module).get("forward")
    while forward is not None:
        if hasattr(forward, "_torchdynamo_orig_callable"):
            return True
        # ``partial(checkpoint, compiled)`` and the like: what is wrapped is looked at, too.
        arguments = getattr(forward, "args", ())
        forward = arguments[0] if isinstance(arguments, tuple) and arguments else None
    return False
