"""What there is to save: the state of each thing as named tensors and plain values.

Models and optimizers go through ``torch.distributed.checkpoint.state_dict``, which names parameters
alike however the model is wrapped; everything else has ``state_dict()``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from rankscope.protocol import crc

Path = tuple[str | int, ...]

SMALL_BYTES = 64
"""CPU tensors up to here, such as an optimizer's step counts, are compared over the ranks."""

LARGE_BYTES = 1 << 16
"""State of other things than models and optimizers is taken apart when it has a larger tensor."""

GROUPS = "param_groups"

EXTRA = "_extra_state"
"""What torch calls that which a module adds to its state by ``get_extra_state``."""

OWN = "rank"
"""What the names of a rank's own things begin with."""


class CannotSave(ValueError):
    """The state cannot be saved as it is; the text says what and why."""


@dataclass
class Gathered:
    """State, flat: the tensors are the live ones, which training will change."""

    tensors: dict[str, Tensor]
    objects: dict[str, Any]
    paths: dict[str, Path]
    """Of each name in the nested state."""
    buffers: set[str] = field(default_factory=set)
    """Names of models' buffers, such as running means, which need not be alike on all ranks."""
    parameters: set[str] = field(default_factory=set)
    """Names of models' parameters: a run is spoilt where these are NaN, and then only, for an
    optimizer's state that is spoils them in the same update. Other things may be so by design."""

    @property
    def layout(self) -> int:
        """CRC-32 of all names, dtypes and shapes (of DTensors, their global ones)."""
        lines = [f"{n} {t.dtype} {tuple(t.shape)}" for n, t in sorted(self.tensors.items())]
        return crc.crc32("\n".join([*lines, *sorted(self.objects)]).encode())

    @property
    def alike(self) -> dict[str, int]:
        """CRC-32 of the small values of each thing, by its name."""
        found: dict[str, int] = {}
        for name, value in sorted({**self.objects, **self.tensors}.items()):
            if name in self.buffers or (isinstance(value, Tensor) and not _small(value)):
                continue
            thing = str(self.paths[name][0])
            found[thing] = crc.crc32(f"{name}={canonical(value)}".encode(), found.get(thing, 0))
        return found


def gather(things: Mapping[str, Any]) -> Gathered:
    """The state of ``things``, flat. Raises :class:`CannotSave`.

    A model or optimizer gives its live tensors. An optimizer that has made no step yet gives its
    settings alone: asked through torch it would make one.
    """
    gathered = Gathered({}, {}, {})
    for thing_name, thing in things.items():
        state = state_of(thing, things)
        buffers = {_address(b) for b in thing.buffers()} if isinstance(thing, nn.Module) else set()
        whole = not isinstance(thing, nn.Module | Optimizer) and not _is_large(state)
        for path, value in [((thing_name,), state)] if whole else flat(state, (thing_name,)):
            name = ".".join(map(str, path))
            if name in gathered.paths:
                raise CannotSave(f"two values are called {name}")
            gathered.paths[name] = path
            if isinstance(value, Tensor):
                gathered.tensors[name] = _plain(name, value)
                if _address(value) in buffers:
                    gathered.buffers.add(name)
                elif isinstance(thing, nn.Module) and path[-1] != EXTRA:
                    gathered.parameters.add(name)
            else:
                gathered.objects[name] = value
    return gathered


def own_name(rank: int, name: str) -> str:
    """What ``name`` of ``rank`` alone is called among everybody's."""
    return f"{OWN}.{rank}.{name}"


def own_buffer(rank: int, name: str) -> str:
    """What ``rank``'s own buffer ``name`` is called among everybody's."""
    return own_name(rank, f"buffers.{name}")


def state_of(thing: Any, things: Mapping[str, Any]) -> Any:
    """The nested state of ``thing``, one of ``things``. Raises :class:`CannotSave`."""
    if isinstance(thing, nn.Module):
        if any(isinstance(module, FullyShardedDataParallel) for module in thing.modules()):
            raise CannotSave("FSDP1 models cannot be saved; use fully_shard (FSDP2)")
        return get_model_state_dict(thing)
    if isinstance(thing, Optimizer):
        if not thing.state:
            return {GROUPS: settings(thing)}
        model = model_of(thing, things)
        if model is None:
            raise CannotSave(
                "an optimizer updates parameters of no model that is saved with it, so there are "
                "no names for its state; add the model"
            )
        return get_optimizer_state_dict(model, thing)
    return thing.state_dict()


def model_of(optimizer: Optimizer, things: Mapping[str, Any]) -> nn.Module | None:
    """The model among ``things`` all of whose parameters ``optimizer`` updates are of."""
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for thing in things.values():
        if isinstance(thing, nn.Module) and updated <= set(map(id, thing.parameters())):
            return thing
    return None


def settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The hyperparameters of each group, without its parameters."""
    return [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]


def flat(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of nested state and where they stand, as DCP flattens it.

    Mappings are always gone into, lists only when there is a tensor or a mapping of one in them.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise CannotSave(f"{'.'.join(map(str, path))} has a key that is no string: {key!r}")
            yield from flat(item, (*path, key))
    elif isinstance(value, list) and _holds_tensors(value):
        for index, item in enumerate(value):
            yield from flat(item, (*path, index))
    else:
        yield path, value


def _is_large(state: Any) -> bool:
    """Whether there is a tensor in ``state`` that is better written on its own.

    Else all of it is one object, which keeps every type in it: keys that are numbers, say.
    """
    if isinstance(state, Tensor):
        return isinstance(state, DTensor) or state.nbytes > LARGE_BYTES
    if isinstance(state, Mapping):
        return any(_is_large(item) for item in state.values())
    return isinstance(state, list) and any(_is_large(item) for item in state)


def _holds_tensors(values: list[Any]) -> bool:
    return any(
        isinstance(value, Tensor | Mapping) or (isinstance(value, list) and _holds_tensors(value))
        for value in values
    )


def _plain(name: str, tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    if local.layout != torch.strided or local.is_quantized or local.is_meta:
        raise CannotSave(f"{name} is not an ordinary tensor ({local.layout}, {local.device})")
    if not isinstance(tensor, DTensor) and type(tensor) is not Tensor:
        raise CannotSave(f"{name} is a {type(tensor).__name__}, which cannot be saved in parts")
    if not has_memory(local):  # torch reads there all the same, which ends the process
        raise CannotSave(f"{name} has no memory now: something has taken it, to give it back later")
    return tensor


def has_memory(tensor: Tensor) -> bool:
    """Whether all numbers of ``tensor`` are in its storage, which may have been made smaller. What
    only stands for other tensors has them there."""
    if tensor.numel() == 0 or type(tensor) is not Tensor:
        return True
    last = sum((n - 1) * each for n, each in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= end


def _address(tensor: Tensor) -> tuple[int, Any]:
    """Tells the tensors of one model apart. A DTensor's shard is never taken for a buffer."""
    if isinstance(tensor, DTensor):
        return -1, id(tensor)
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset()


def _small(tensor: Tensor) -> bool:
    return (
        not isinstance(tensor, DTensor)
        and tensor.device.type == "cpu"
        and tensor.nbytes <= SMALL_BYTES
    )


def canonical(value: Any) -> str:
    """A text that is equal for equal values, on any rank; of what it does not know, the type."""
    if isinstance(value, Tensor):
        return canonical(value.tolist()) if _small(value) else "tensor"
    if value is None or isinstance(value, bool | int | float | str | bytes | complex):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, list | tuple):
        return f"[{','.join(canonical(item) for item in value)}]"
    if isinstance(value, Mapping):
        items = sorted(f"{canonical(key)}:{canonical(item)}" for key, item in value.items())
        return f"{{{','.join(items)}}}"
    return type(value).__name__
