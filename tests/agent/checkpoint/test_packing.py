"""What is packed without a trial can be loaded, and is what it was."""

import io
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankscope.agent.checkpoint.gather import CannotSave, canonical
from rankscope.agent.checkpoint.packing import is_plain, packed

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=20)
)
tensors = st.sampled_from(
    [torch.uint8, torch.int64, torch.float32, torch.float64, torch.bfloat16, torch.bool]
).map(lambda dtype: torch.arange(6).to(dtype).view(2, 3)[:, 1:])
plain = st.recursive(
    scalars | tensors,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(scalars, inner, max_size=4),
    ),
)


def loaded(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def told(value: Any) -> str:
    """Equal for what is the same: types, the sign of a zero and the order of keys count."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.tolist()}"
    if isinstance(value, dict):
        return f"{{{','.join(f'{told(key)}={told(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(map(told, value))})"
    return canonical(value)


@given(plain)
def test_what_is_packed_is_loaded_as_it_was(value: Any) -> None:
    """By the loader that runs no code; whatever was packed before."""
    assert told(loaded(packed("v", value))) == told(value)


@given(plain)
def test_it_is_packed_as_torch_does(value: Any) -> None:
    sink = io.BytesIO()
    torch.save(value, sink)
    assert packed("v", value) == sink.getvalue()


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1, 1.0), (1, True), (0, False), ("1", 1), (None, "None")]
)
def test_values_that_are_equal_are_not_taken_for_each_other(one: Any, other: Any) -> None:
    assert told(loaded(packed("v", one))) == told(one)
    assert told(loaded(packed("v", other))) == told(other)


class Number(int):
    pass


class Odd(dict[str, int]):
    pass


def holds_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def without_memory() -> torch.Tensor:
    tensor = torch.zeros(100)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    "value",
    [
        *(Number(3), [Number(3)], Odd(a=1), {Number(3): 1}, math.sqrt, {"f": [math.sqrt]}),
        *({1, 2}, b"bytes", 1j, 1 << 70, object(), holds_itself(), without_memory()),
        *(torch.nn.Parameter(torch.zeros(2)), torch.zeros(2).to_sparse(), torch.Size([2])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_of_everything_else_it_is_tried(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what could only be loaded by running its code is refused as before."""
    assert not is_plain([value])
    tried, load = list[int](), torch.load

    def trying(*args: Any, **more: Any) -> Any:
        tried.append(1)
        return load(*args, **more)

    monkeypatch.setattr(torch, "load", trying)
    try:
        packed("v", [value])
    except CannotSave:
        return
    assert tried == [1]
