"""The gradient scaler's factor: gradients are as much too large, and may overflow by design.

``GradScaler.scale`` is wrapped on its class, so that the scaler in use is known; a factor on the
CPU is read at once.
"""

import functools
import sys
import weakref
from typing import Any

from torch.amp.grad_scaler import GradScaler

SHARDED = "torch.distributed.fsdp.sharded_grad_scaler"


class Scalers:
    """The scaler that was used last, if any."""

    def __init__(self) -> None:
        self._used: Any = None
        self._wrapped: list[tuple[Any, Any, Any]] = []

    def install(self) -> None:
        kinds: list[Any] = [GradScaler]
        sharded = sys.modules.get(SHARDED)
        if sharded is not None:
            kinds.append(getattr(sharded, "ShardedGradScaler", None))
        for kind in kinds:
            original = vars(kind).get("scale") if kind is not None else None
            if original is not None:
                wrapper = self._around(original)
                self._wrapped.append((kind, original, wrapper))
                kind.scale = wrapper

    def _around(self, original: Any) -> Any:
        @functools.wraps(original)
        def scale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._used is None or self._used() is not scaler:
                self._used = weakref.ref(scaler)
            return original(scaler, *args, **kwargs)

        return scale

    def uninstall(self) -> None:
        for kind, original, wrapper in self._wrapped:
            if vars(kind).get("scale") is wrapper:
                kind.scale = original
        self._wrapped.clear()
        self._used = None

    def used(self) -> Any:
        """The scaler in use; None when none is, or it is disabled."""
        scaler = None if self._used is None else self._used()
        return scaler if scaler is not None and getattr(scaler, "_enabled", False) else None

    def tensor(self) -> Any:
        """The factor as the tensor that the scaler keeps; None where there is none yet."""
        scaler = self.used()
        return None if scaler is None else getattr(scaler, "_scale", None)

    def scale(self) -> float | None:
        """The factor where it is on a CPU; None where there is none, or it is on a device."""
        tensor = self.tensor()
        return float(tensor) if tensor is not None and tensor.is_cpu else None
