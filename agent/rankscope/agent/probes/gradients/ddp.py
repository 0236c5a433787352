"""What DDP does with gradients: when it reduces them, and in which type.

Its communication hook's slot is left to the user. A hook of ours there would have to divide as the
reducer does, which multiplies by 1/R what it copies into a bucket and divides what lies in it
already: which of the two, a hook cannot see, and their last bits differ.
"""

import functools
import weakref
from typing import Any

import torch

from rankscope.agent.probes.gradients.accumulated import Accumulated
from rankscope.agent.probes.gradients.names import uncompiled

CASTS = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""As torch's own hooks that cast say in their names, such as ``fp16_compress_hook``."""


def settle(hooks: Accumulated, model: Any) -> None:
    """Have ``hooks`` on ``model`` (a DDP wrapper, or called by one now) know of its wrapper."""
    wrapper = wrapper_of(model)
    if wrapper is None:
        return
    if not is_settled(hooks, model):
        hooks.together.doubt()
    held = hooks.wrapper = weakref.ref(wrapper)
    hooks.cast = functools.partial(cast_of, held)
    hooks.reduces = functools.partial(reduces, held)
    own = {id(parameter) for parameter in model.parameters()}
    # Without a bucket view DDP writes what was reduced over the gradients when backward ends, in a
    # callback that is ordered when its last bucket is full. Ours is ordered by the first gradient.
    hooks.stays = hooks.holds = not getattr(wrapper, "gradient_as_bucket_view", False)
    # In the first backward of a static graph DDP's callback is ordered before any gradient.
    hooks.hasty_once = bool(getattr(wrapper, "static_graph", False))
    hooks.hasty = any(
        parameter.requires_grad and id(parameter) not in own for parameter in wrapper.parameters()
    )
    hooks.together.allowed = (
        hooks.stays
        and not hooks.hasty
        and not getattr(wrapper, "find_unused_parameters", True)
        and getattr(wrapper, "mixed_precision", None) is None
    )


def is_settled(hooks: Accumulated, model: Any) -> bool:
    """Whether no other wrapper calls ``model`` than the one that ``hooks`` know of.

    A model may be wrapped anew as it goes on, in another way.
    """
    if hooks.wrapper is None:
        return True  # not known yet: it is found when the parameters are
    wrapper = wrapper_of(model)
    return wrapper is None or hooks.wrapper() is wrapper


def wrapper_of(model: Any) -> Any:
    """The DDP wrapper that ``model`` is, is compiled from, or is being called by; None: none."""
    kind: Any = torch.nn.parallel.DistributedDataParallel
    inner = uncompiled(model)
    if isinstance(inner, kind):
        return inner
    return getattr(kind, "_active_ddp_module", None)


def reduces(wrapper: "weakref.ref[Any]") -> bool:
    """Whether DDP reduces at the end of the backward in work."""
    return bool(getattr(wrapper(), "require_backward_grad_sync", False))


def cast_of(wrapper: "weakref.ref[Any]") -> torch.dtype | None:
    """What the gradients of this backward will be cast to before they are reduced, if known."""
    found = wrapper()
    if not getattr(found, "require_backward_grad_sync", True):
        return None
    for hook, _ in getattr(found, "_comm_hooks", ()):
        name = getattr(hook, "__qualname__", "")
        for word, dtype in CASTS.items():
            if word in name:
                return dtype
    return None
