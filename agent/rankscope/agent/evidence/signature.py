"""A call of a process group's method in the words of torch's flight recorder. Pure.

What a rank says of its calls itself is compared with what others' recorders say, so the words must
be the recorder's own: gloo makes a reduce-scatter of an all-reduce, and shows it as one.
"""

from collections.abc import Sequence
from typing import Any

from rankscope.agent.evidence import recorder

_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single": "_all_gather_base",
    "_allgather_base": "_all_gather_base",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "_reduce_scatter_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "all_to_all_single": "all_to_all",
    "alltoall_base": "all_to_all",
    "alltoall": "all_to_all",
    "barrier": "barrier",
}
METHODS = tuple(_NAMES)
"""The methods of ``ProcessGroup`` that begin a collective."""

_GLOO = {
    "_all_gather_base": "all_gather",
    "reduce_scatter": "all_reduce",
    "_reduce_scatter_base": "all_reduce",
}
_IN_PLACE = ("allreduce", "allreduce_coalesced", "broadcast", "reduce")
_GATHERS = ("allgather", "gather", "all_gather_single", "_allgather_base")
_SHARED = ("reduce_scatter_single", "_reduce_scatter_base", "reduce_scatter")


def name(backend: str, method: str) -> str:
    """``gloo:all_reduce``, ``nccl:_all_gather_base``, …"""
    plain = _NAMES[method]
    return f"{backend}:{_GLOO.get(plain, plain) if backend == 'gloo' else plain}"


def backend_of(group: Any, args: Sequence[Any]) -> str:
    """Of a group that has one for each kind of device, that of the tensors' device."""
    tensors = _tensors(args[:2])
    try:
        backend = group._get_backend(tensors[0].device) if tensors else group
        return str(backend.name())
    except (RuntimeError, AttributeError):  # a backend of somebody's own
        return str(group.name())


def sizes_and_dtype(backend: str, method: str, args: Sequence[Any], size: int) -> tuple[str, str]:
    """In words, of a call with ``args`` in a group of ``size`` ranks."""
    if method == "barrier" or not args:
        return "", ""
    if method in _IN_PLACE:
        inputs = outputs = _tensors(args[0])
    else:
        outputs, inputs = _tensors(args[0]), _tensors(args[1] if len(args) > 1 else ())
    ins = [list(one.shape) for one in inputs]
    outs = [list(one.shape) for one in outputs]
    if backend == "gloo":
        if method in _GATHERS and outs:
            outs = [[size, *shape] for shape in ins]
        elif method == "scatter" and ins:
            ins = [[size, *shape] for shape in outs]
        elif method in _SHARED:
            outs = ins
    dtype = str(inputs[0].dtype if inputs else outputs[0].dtype if outputs else "")
    return recorder.sizes(ins, outs), dtype.removeprefix("torch.")


def _tensors(given: Any) -> list[Any]:
    """The first tensors in nested lists."""
    if isinstance(given, list | tuple):
        return [tensor for one in given[:8] for tensor in _tensors(one)][:8]
    return [given] if hasattr(given, "shape") else []
