"""Counting the bytes of tensors: resident memory does not show what training takes on a CPU.

Every operation's results are seen in a dispatch mode, and each storage counts once, from the
operation that made it, or first returned it, until nothing refers to it. Storages that a sharded
model empties and fills again, by ``UntypedStorage.resize_``, are followed. Not seen: what is no
tensor (buffers of gloo and NCCL, scratch memory within a kernel, what an allocator keeps).
"""

import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of ``tensor``."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def storage_bytes(tensors: Iterable[Tensor], known: set[int] | None = None) -> int:
    """Bytes of the storages of ``tensors``, each once; those in ``known`` not, and it grows."""
    seen = set() if known is None else known
    total = 0
    for tensor in tensors:
        storage = local(tensor).untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            total += storage.nbytes()
    return total


class TensorBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of all storages on one kind of device that came into being while it was on.

    It changes no result. Operations on DTensors are seen as those on the local tensors.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._device_type = device_type
        self._sizes: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}

    def adopt(self, tensors: Iterable[Tensor]) -> None:
        """Count what came into being before."""
        for tensor in tensors:
            self._see(local(tensor).untyped_storage())

    def restart(self) -> None:
        """The peak is that from here on."""
        self.peak = self.now

    def __enter__(self) -> Self:
        self._resize = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            done = self._resize(storage, size)
            self._see(storage)
            return done

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if DTensor in types:
            return NotImplemented  # it makes of it operations on local tensors, which come here
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and not self._was_there(value, args):
                self._see(value.untyped_storage())
        return result

    def _was_there(self, value: Tensor, args: Any) -> bool:
        """Whether ``value`` is a view of something from before, such as of the data."""
        storage = value.untyped_storage()._cdata
        return storage not in self._sizes and any(
            isinstance(given, Tensor) and given.untyped_storage()._cdata == storage
            for given in tree_leaves(args)
        )

    def _see(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type != self._device_type:  # "meta": a shape that is only worked out
            return
        key, size = storage._cdata, storage.nbytes()
        if key not in self._sizes:
            # The storage's Python object lives as long as the storage itself.
            self._references[key] = weakref.ref(storage, partial(self._gone, key))
            self._sizes[key] = 0
        self.now += size - self._sizes[key]
        self._sizes[key] = size
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int, reference: Any) -> None:
        self.now -= self._sizes.pop(key)
        self._references.pop(key)
