"""A copy of a tensor in memory that is not read again soon, past the caches.

What is written through a cache is read from memory first: of three passes over the memory one is
for nothing, and the copy is what training waits for. Instructions that write without reading are in
every x86-64 processor. torch copies without them, and the C library takes them for single copies
from a size on that it guesses from the caches, which can be hundreds of megabytes. So here are
thirty-odd instructions, as bytes: nothing has to be compiled where this is installed. They are laid
into memory that is executable and was never writable, and tried before they are relied on; where
any of that is not to be had, torch copies.
"""

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy
import torch
from torch import Tensor

PAGE_BYTES = 4096
PAGES = 4
"""Copied side by side: a processor reads ahead within a page, and in several at once."""

BLOCK_BYTES = PAGES * PAGE_BYTES
"""What is copied in this way is a multiple of it."""

LEAST_BYTES = 1 << 20
"""What is smaller fits a cache."""

ALIGNMENT = 16
"""Of the address that is written to."""

LINE_BYTES = 64
AHEAD_BYTES = 256
"""So far before it is read memory is asked for."""

Machine = Callable[[int, int, int], None]
"""Copies to an address (a multiple of 16) from another one so many bytes (whole blocks)."""


def copy(source: Tensor, target: Tensor) -> None:
    """``target.copy_(source)``, of equal shapes and types; ``target`` is contiguous.

    The host does not wait for a device.
    """
    if streams(source, target) and (run := machine()) is not None:
        count_bytes = target.nbytes // BLOCK_BYTES * BLOCK_BYTES
        run(target.data_ptr(), source.data_ptr(), count_bytes)
        done = count_bytes // target.element_size()
        source, target = source.reshape(-1)[done:], target.view(-1)[done:]
    target.copy_(source, non_blocking=True)


def streams(source: Tensor, target: Tensor) -> bool:
    """Whether the bytes of ``source`` are, as they lie there, those that ``target`` is to have."""
    return (
        target.nbytes >= LEAST_BYTES
        and source.dtype == target.dtype
        and source.shape == target.shape
        and source.device.type == target.device.type == "cpu"
        and source.is_contiguous()
        and not (source.is_conj() or source.is_neg())
        and target.data_ptr() % ALIGNMENT == 0
        # torch copies with as many threads as it has, which is as fast from two on.
        and torch.get_num_threads() == 1
    )


@lru_cache(maxsize=1)
def machine() -> Machine | None:
    """What copies, once it was tried; None where there is no such thing."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return None
    try:
        found = executable(b"".join(instructions()))
        return found if works(found) else None
    except Exception:  # noqa: BLE001 - whatever a system does not allow
        return None


def instructions() -> Iterator[bytes]:
    """A function of the System V calling convention: ``rdi`` to, ``rsi`` from, ``rdx`` bytes, of
    which there is a block at least. It changes ``ecx`` and ``xmm0`` to ``xmm15``, which the caller
    does not count on, and no stack."""
    a_block = PAGE_BYTES // LINE_BYTES
    line = [page * PAGE_BYTES + at for page in range(PAGES) for at in range(0, LINE_BYTES, 16)]
    lines = b"".join(
        [
            *(_prefetch(page * PAGE_BYTES + AHEAD_BYTES) for page in range(PAGES)),
            *(_load(register, at) for register, at in enumerate(line)),
            *(_stream(register, at) for register, at in enumerate(line)),
            b"\x48\x83\xc6" + bytes([LINE_BYTES]),  # add rsi, 64
            b"\x48\x83\xc7" + bytes([LINE_BYTES]),  # add rdi, 64
            b"\xff\xc9",  # dec ecx
        ]
    )
    lines += _back(lines)
    block = b"".join(
        [
            b"\xb9" + _four(a_block),  # mov ecx, 64
            lines,
            b"\x48\x81\xc6" + _four(BLOCK_BYTES - PAGE_BYTES),  # add rsi, 12288
            b"\x48\x81\xc7" + _four(BLOCK_BYTES - PAGE_BYTES),  # add rdi, 12288
            b"\x48\x81\xea" + _four(BLOCK_BYTES),  # sub rdx, 16384
        ]
    )
    yield b"\xf3\x0f\x1e\xfa"  # endbr64
    yield block + _back(block)
    yield b"\x0f\xae\xf8"  # sfence: all of it is there for whoever is told of it later
    yield b"\xc3"  # ret


def _prefetch(at: int) -> bytes:
    """prefetcht0 [rsi + at]: asks for memory, and never fails."""
    return b"\x0f\x18\x8e" + _four(at)


def _load(register: int, at: int) -> bytes:
    """movdqu xmm, [rsi + at]"""
    return b"\xf3" + _extended(register) + b"\x0f\x6f" + _operands(register, 6) + _four(at)


def _stream(register: int, at: int) -> bytes:
    """movntdq [rdi + at], xmm"""
    return b"\x66" + _extended(register) + b"\x0f\xe7" + _operands(register, 7) + _four(at)


def _back(over: bytes) -> bytes:
    """jnz to where ``over`` begins, which it stands behind"""
    return b"\x0f\x85" + _four(-len(over) - 6)


def _extended(register: int) -> bytes:
    return b"\x44" if register >= 8 else b""


def _operands(register: int, base: int) -> bytes:
    return bytes([0x80 | (register & 7) << 3 | base])


def _four(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def executable(code: bytes) -> Machine:
    """``code`` as a function; the GIL is free while it runs. Raises OSError where that is not
    allowed."""
    descriptor = os.memfd_create("rankscope-copy", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, code)
        memory = mmap.mmap(
            descriptor, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
        )
    finally:
        os.close(descriptor)
    address = numpy.frombuffer(memory, dtype=numpy.uint8).ctypes.data
    call: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(address)

    def run(to: int, begin: int, count_bytes: int) -> None:
        assert memory is not None  # kept for as long as this is
        call(to, begin, count_bytes)

    return run


def works(run: Machine) -> bool:
    """Whether it copies two blocks from an odd address, and nothing around them."""
    size = 2 * BLOCK_BYTES
    source = numpy.arange(size + 1, dtype=numpy.uint32).astype(numpy.uint8)[1:]
    target = numpy.zeros(size + 4 * ALIGNMENT, dtype=numpy.uint8)
    begin = ALIGNMENT + -target.ctypes.data % ALIGNMENT
    expected = target.copy()
    expected[begin : begin + size] = source
    run(target.ctypes.data + begin, source.ctypes.data, size)
    return bool((target == expected).all())
