"""Values that are no tensors, each as ``torch.save`` writes it."""

import io
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rankscope.agent.checkpoint.gather import CannotSave, has_memory

SCALARS = (type(None), bool, int, float, str)

SHORT = 1000
"""What is known of a value by its text is kept up to so many characters of it."""

LARGEST = 1 << 63
"""Integers from there on are left to a trial."""


def packed(name: str, value: Any) -> bytes:
    """``value`` as ``torch.save`` writes it.

    Raises :class:`CannotSave` when it holds something that could not be loaded again without
    running code of a pickle.
    """
    if type(value) in SCALARS and len(text := repr(value)) <= SHORT:
        return _scalar(text, value)
    try:
        content = _saved(value)
        if not is_plain(value):
            torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever the value's own pickling raises
        first = " ".join(str(error).split(". ")[0].split())
        raise CannotSave(
            f"{name} holds a {type(value).__name__} that cannot be saved; "
            f"use tensors, numbers, strings, lists and dicts ({first[:200]})"
        ) from None
    return content


def is_plain(value: Any) -> bool:
    """Whether it is known without a trial, which takes longer than all the rest, that ``value`` can
    be loaded: it is made of a few types alone, as the state of random number generators is."""
    try:
        return _is_plain(value)
    except RecursionError:  # it holds itself, say
        return False


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(-LARGEST <= value < LARGEST)
    if kind in SCALARS:
        return True
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return kind is Tensor and _is_plain_tensor(value)


def _is_plain_tensor(tensor: Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.dtype in (torch.uint8, torch.int64, torch.float32, torch.float64)
        and not tensor.requires_grad
        and has_memory(tensor)
    )


@lru_cache(maxsize=1024)
def _scalar(text: str, value: Any) -> bytes:
    """The same each time. ``text`` tells apart what is equal and not the same, as 0.0 and -0.0."""
    return _saved(value)


def _saved(value: Any) -> bytes:
    sink = io.BytesIO()
    torch.save(value, sink)
    return sink.getvalue()
