"""Parameters by the names that the user's model gives them."""

from collections.abc import Iterator
from typing import Any

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def clean(name: str, *, wrapped: bool = False) -> str:
    """``name`` without what wrappers have put into it.

    ``wrapped``: the model itself is a wrapper that calls the user's model ``module``.
    """
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    if wrapped and parts and parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


def uncompiled(model: Any) -> Any:
    """``model``, or what ``torch.compile`` has wrapped in it."""
    modules = model.__dict__.get("_modules", ())
    if "_orig_mod" not in modules:  # not ``get``: what TorchScript has there is no dictionary
        return model
    return modules["_orig_mod"]


def is_wrapper(model: Any) -> bool:
    """Whether ``model`` is a DDP or DataParallel wrapper, also inside a compiled module."""
    kinds = type(uncompiled(model)).__mro__
    return any(kind.__name__ in ("DistributedDataParallel", "DataParallel") for kind in kinds)


def named_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """Each parameter once (a tied one by its first name), as the user's model names it."""
    wrapped = is_wrapper(model)
    for name, parameter in model.named_parameters():
        yield clean(name, wrapped=wrapped), parameter
