"""Copies past the caches are those that torch makes; where there are none, torch makes them."""

import mmap
import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.agent.checkpoint import streaming
from rankscope.agent.checkpoint.plan import plan
from rankscope.agent.checkpoint.staging import Stager
from rankscope.agent.checkpoint.streaming import BLOCK_BYTES, LEAST_BYTES

AROUND = 4096
"""Bytes before and behind what is copied, in which nothing may change."""

here = pytest.mark.skipif(streaming.machine() is None, reason="this machine has no such copies")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    known = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(known)


@pytest.fixture
def anew() -> Iterator[None]:
    """In the test it is found out anew what can be done, and behind it once more."""
    streaming.machine.cache_clear()
    yield
    streaming.machine.cache_clear()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each copy that was made past the caches."""
    run, found = streaming.machine(), []

    def counting(to: int, begin: int, count_bytes: int) -> None:
        assert run is not None
        found.append(count_bytes)
        run(to, begin, count_bytes)

    monkeypatch.setattr(streaming, "machine", lambda: counting)
    return found


def noise(size_bytes: int) -> Tensor:
    """Any bytes at all: taken for numbers, there are signalling NaN among them."""
    return torch.randint(0, 256, (size_bytes,), dtype=torch.uint8)


def raw(tensor: Tensor) -> bytes:
    """The numbers of ``tensor`` one after the other, as they are to be saved."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def staged(tensor: Tensor) -> bytes:
    copied = Stager().stage(plan({"t": tensor}, (), 0, 1))
    return b"".join(bytes(copied.bytes()[one.begin : one.end]) for one in copied.copies)


@here
@given(
    over=st.integers(-20, 70_000),
    begin=st.integers(0, 130),
    to=st.integers(0, 130),
    itemsize=st.sampled_from([1, 2, 4, 8]),
)
@settings(deadline=None, max_examples=60)
def test_all_of_it_is_copied_and_nothing_around_it(
    over: int, begin: int, to: int, itemsize: int
) -> None:
    """From any address to any other, whole blocks or not, to the bit."""
    dtype = {1: torch.uint8, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[itemsize]
    size = (LEAST_BYTES + over) // itemsize * itemsize
    begin, to = begin // itemsize * itemsize, to // itemsize * itemsize
    source, memory = noise(begin + size)[begin:], noise(AROUND + to + size + AROUND)
    expected = memory.clone()
    at = slice(AROUND + to, AROUND + to + size)
    expected[at] = source
    streaming.copy(source.view(dtype), memory[at].view(dtype))
    assert torch.equal(memory, expected)


@here
def test_whole_blocks_of_large_tensors_are_copied_past_the_caches(counted: list[int]) -> None:
    """The rest of them and smaller tensors are not."""
    large, small = noise(LEAST_BYTES + 3 * BLOCK_BYTES + 5), noise(LEAST_BYTES - 1)
    assert staged(large) == raw(large)
    assert counted == [LEAST_BYTES + 3 * BLOCK_BYTES]
    assert staged(small) == raw(small)
    assert len(counted) == 1


SIDE = 1024
ODD: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: torch.randn(SIDE, SIDE).t(),
    "every other row": lambda: torch.randn(2 * SIDE, SIDE)[::2],
    "expanded": lambda: torch.randn(SIDE, 1).expand(SIDE, SIDE),
    "channels last": lambda: torch.randn(4, 16, 128, 128).to(memory_format=torch.channels_last),
    "conjugate": lambda: torch.randn(SIDE, SIDE, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(SIDE, SIDE, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("name", ODD)
def test_a_tensor_that_lies_otherwise_is_saved_as_it_reads(name: str) -> None:
    """Where the bytes in memory are not those of its numbers in order, torch puts them so."""
    tensor = ODD[name]()
    assert staged(tensor) == raw(tensor)


@here
@pytest.mark.parametrize("name", ODD)
def test_such_a_tensor_is_not_copied_byte_by_byte(name: str, counted: list[int]) -> None:
    staged(ODD[name]())
    assert counted == []


@here
def test_several_threads_are_left_to_torch(counted: list[int]) -> None:
    torch.set_num_threads(2)
    try:
        tensor = torch.randn(SIDE, SIDE)
        assert staged(tensor) == raw(tensor)
    finally:
        torch.set_num_threads(1)
    assert counted == []


def refuse(*args: Any, **more: Any) -> Any:
    raise PermissionError(13, "Permission denied")


def nothing(code: bytes) -> streaming.Machine:
    return lambda to, begin, count_bytes: None


WITHOUT: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "memory that is not to be executed": lambda patch: patch.setattr(mmap, "mmap", refuse),
    "no such memory": lambda patch: patch.setattr(os, "memfd_create", refuse, raising=False),
    "another system": lambda patch: patch.setattr(sys, "platform", "darwin"),
    "another processor": lambda patch: patch.setattr(platform, "machine", lambda: "aarch64"),
    "32 bits": lambda patch: patch.setattr(sys, "maxsize", (1 << 31) - 1),
    "a copy that is not equal": lambda patch: patch.setattr(streaming, "executable", nothing),
}


@pytest.mark.parametrize("why", WITHOUT)
def test_where_there_is_no_such_copy_torch_copies(
    why: str, monkeypatch: pytest.MonkeyPatch, anew: None
) -> None:
    tensor, target = torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    with monkeypatch.context() as patch:
        WITHOUT[why](patch)
        assert streaming.machine() is None
        streaming.copy(tensor, target)
    assert torch.equal(tensor, target)


def test_on_linux_on_x86_64_it_is_there(anew: None) -> None:
    """Else all of the above would be skipped where it matters."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("another system")
    assert streaming.machine() is not None
