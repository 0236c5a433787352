"""A checkpoint's state put into the things it is of. Every byte is checked before it is used."""

import io
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.optim import Optimizer

from rankscope.agent.checkpoint import gather
from rankscope.agent.checkpoint.writing import dtype_name
from rankscope.protocol import coverage, crc
from rankscope.protocol.manifest import Chunk, Manifest, Place


class CannotLoad(ValueError):
    """The checkpoint is not of this state, or damaged; the text says what and why."""


class Source:
    """Reads entries of one checkpoint; use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = ExitStack()
        self._descriptors: dict[str, int] = {}

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def data(self, name: str, place: Place) -> bytearray:
        """The data of an entry, which are what was written. Raises :class:`CannotLoad`."""
        content = bytearray(place.data_bytes)
        view, at = memoryview(content), place.data_at_bytes
        try:
            descriptor = self._descriptor(place.file)
            while view:
                count = os.preadv(descriptor, [view], at)
                if count == 0:
                    raise CannotLoad(f"{name}: {place.file} ends too early")
                view, at = view[count:], at + count
        except OSError as error:
            raise CannotLoad(f"{name}: cannot read {place.file}: {error.strerror}") from None
        if crc.crc32(content) != place.crc32:
            raise CannotLoad(f"{name} in {place.file} is damaged: its checksum does not fit")
        return content

    def value(self, name: str, place: Place) -> Any:
        """An object. Nothing but plain values and tensors is made of its pickle."""
        content = io.BytesIO(self.data(name, place))
        try:
            return torch.load(content, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 - whatever torch makes of bytes that are none
            raise CannotLoad(f"{name} cannot be read: {type(error).__name__}") from None

    def _descriptor(self, file: str) -> int:
        if file not in self._descriptors:
            descriptor = os.open(self._path / file, os.O_RDONLY | os.O_CLOEXEC)
            self._open.callback(os.close, descriptor)
            self._descriptors[file] = descriptor
        return self._descriptors[file]


def load(
    source: Source, manifest: Manifest, things: Mapping[str, Any], rank: int, world_size: int
) -> None:
    """Put the state of the checkpoint into ``things`` on ``rank`` of ``world_size``.

    Raises :class:`CannotLoad`; what does not fit is found before anything is changed.
    """
    for thing in things.values():
        if isinstance(thing, Optimizer) and _has_state(manifest, things, thing):
            _prepare(thing, things)
    target = gather.gather(things)
    refuse_others(manifest, target, things)
    values = {
        name: source.value(name, place)
        for name, place in manifest.objects.items()
        if not name.startswith(f"{gather.OWN}.")
    }
    for name, tensor in target.tensors.items():
        entry = manifest.tensors[name]
        if name in target.buffers and manifest.world_size == world_size:
            entry = manifest.tensors.get(gather.own_buffer(rank, name), entry)
        fill(source, name, tensor, entry.chunks)
    for name, thing in things.items():
        give(name, thing, things, target, values)


def refuse_others(manifest: Manifest, target: gather.Gathered, things: Mapping[str, Any]) -> None:
    """Raise :class:`CannotLoad` unless the checkpoint has just the tensors of ``target``, alike."""
    saved = {_thing(manifest, name) for name in (*manifest.tensors, *manifest.objects)}
    saved -= {gather.OWN}
    problems = [
        *(
            f"there is nothing of {name} in the checkpoint"
            for name in sorted(things.keys() - saved)
        ),
        *(
            f"{name} is in the checkpoint and not among what is to be loaded"
            for name in sorted(saved - things.keys())
        ),
    ]
    if not problems:
        problems = sorted(_differences(manifest, target))
    if problems:
        raise CannotLoad("; ".join(coverage.shortened(problems)[:4]))


def _differences(manifest: Manifest, target: gather.Gathered) -> Iterator[str]:
    for name, tensor in target.tensors.items():
        entry = manifest.tensors.get(name)
        if entry is None:
            yield f"{name} is not in the checkpoint"
        elif entry.shape != tuple(tensor.shape):
            yield f"{name} is {list(entry.shape)} there and {list(tensor.shape)} here"
        elif entry.dtype != dtype_name(tensor.dtype):
            yield f"{name} is {entry.dtype} there and {dtype_name(tensor.dtype)} here"
    for name in manifest.tensors.keys() - target.tensors.keys():
        if not name.startswith(f"{gather.OWN}."):
            yield f"{name} is in the checkpoint and not here"


def fill(source: Source, name: str, tensor: Tensor, chunks: list[Chunk]) -> None:
    """Read into ``tensor``, or the shard of it that this rank has, what it has of ``chunks``."""
    if isinstance(tensor, DTensor):
        lengths, offsets = compute_local_shape_and_global_offset(
            tensor.shape, tensor.device_mesh, tensor.placements
        )
        tensor = tensor.to_local()
    else:
        lengths, offsets = tuple(tensor.shape), (0,) * tensor.ndim
    for chunk in chunks:
        inside = [
            (max(a, b), min(a + n, b + m))
            for a, n, b, m in zip(offsets, lengths, chunk.offsets, chunk.lengths, strict=True)
        ]
        if any(begin >= end for begin, end in inside):
            continue
        read = torch.frombuffer(source.data(name, chunk.place), dtype=tensor.dtype)
        read = read.view(chunk.lengths)
        there = tuple(slice(b - o, e - o) for (b, e), o in zip(inside, offsets, strict=True))
        here = tuple(slice(b - o, e - o) for (b, e), o in zip(inside, chunk.offsets, strict=True))
        tensor[there].copy_(read[here])


def give(
    name: str,
    thing: Any,
    things: Mapping[str, Any],
    target: gather.Gathered,
    values: Mapping[str, Any],
) -> None:
    """Hand ``thing`` its state: its tensors, filled by now, and the plain ``values``."""
    nested: dict[str, Any] = {}
    for leaf, path in target.paths.items():
        if path[0] == name:
            if leaf not in target.tensors and leaf not in values:
                raise CannotLoad(f"{leaf} is not in the checkpoint")
            put(nested, path, target.tensors.get(leaf, values.get(leaf)))
    state = nested.get(name, {})
    if isinstance(thing, nn.Module):
        set_model_state_dict(thing, state)
    elif isinstance(thing, Optimizer):
        model = gather.model_of(thing, things)
        if model is not None and thing.state:
            set_optimizer_state_dict(model, thing, state)
        else:
            for group, saved in zip(thing.param_groups, state[gather.GROUPS], strict=True):
                group.update({key: value for key, value in saved.items() if key != "params"})
    else:
        thing.load_state_dict(state)


def put(nested: Any, path: gather.Path, value: Any) -> None:
    """Set ``value`` where ``path`` leads in ``nested``; lists are made as they are needed."""
    for at, following in itertools.pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(at, int):
            while len(nested) <= at:
                nested.append(empty)
            nested = nested[at]
        else:
            nested = nested.setdefault(at, empty)
    last = path[-1]
    if isinstance(last, int):
        nested.extend([None] * (last + 1 - len(nested)))
    nested[last] = value


def _thing(manifest: Manifest, name: str) -> str:
    if name.startswith(f"{gather.OWN}."):
        return gather.OWN
    path = manifest.paths.get(name)
    return str(path[0]) if path else name


def _has_state(manifest: Manifest, things: Mapping[str, Any], thing: Any) -> bool:
    name = next(name for name, one in things.items() if one is thing)
    return any(other.startswith(f"{name}.state.") for other in manifest.tensors)


def _prepare(optimizer: Optimizer, things: Mapping[str, Any]) -> None:
    """Let ``optimizer``, which has made no step, make the state that a checkpoint is read into."""
    model = gather.model_of(optimizer, things)
    if not optimizer.state and model is not None:
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        get_optimizer_state_dict(model, optimizer)
