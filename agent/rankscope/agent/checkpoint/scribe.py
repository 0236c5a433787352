"""The program that writes one rank's tensors to its file, in a process of its own.

It is run by its path and knows the standard library alone, the file ``notfinite`` beside it, and a
faster checksum where its rank has one. In a process of its own it never holds the GIL of training,
and may have the lowest priority there is without that anybody who waits for that GIL has to wait
for it.

Its arguments are an inherited descriptor, of the memory to read; how politely it is to go about it:
2 takes what nobody else wants of a core, 1 a small share, 0 as much as anybody; and the directory
in which the checksum's library is, or nothing. Its stdin is a socket. For each file a descriptor of
it comes with the size of what follows (8 bytes, the most significant first): a line for each piece,
``begin size at dtype`` (bytes: where it is in the memory, how long it is, where it goes in the
file; the type of its numbers, or ``-`` where nobody asks whether they are finite). It answers with
lines on stdout:

- ``w N``: so many bytes were written by now, of all pieces
- ``d I C F``: piece I is written, its CRC-32 is C, its numbers are F, as in ``notfinite``
- ``s``: all of it is on the disk, after a line ``s`` on stdin has asked for that
- ``e N``: the system refused with errno N, and this process has ended

Then it waits for the next file: to begin, and to have the memory at hand, takes as much of a core
as to write. It ends when its stdin does.

Where memory and file allow it the data go to the disk from where they are (``O_DIRECT``): a copy
into the system's cache of files, which nobody would read again soon, costs more than all the rest,
and takes the memory's bandwidth from training.
"""

import contextlib
import errno
import importlib.util
import mmap
import os
import select
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

BLOCK_BYTES = 512 << 10
"""Checksummed, looked at and, where the disk does not read memory itself, written: from a core's
own cache, not from memory a second time."""

DIRECT_BYTES = 16 << 20
"""The same where the disk reads the memory itself: each call has a cost of its own."""

THREADS = 3
PAGE_BYTES = 4096
"""Of which begin and size are multiples then."""

SIZE_BYTES = 8
SYNC = b"s\n"
TELL_EVERY_S = 0.5
NICENESS = {2: 19, 1: 10, 0: 0}
"""By politeness."""


def give_way(politely: int) -> None:
    """Let everybody else go first, as far as the system lets one ask for that."""
    niceness = NICENESS[politely]
    if niceness:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if politely == 2:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def gone() -> bool:
    """Whether whoever started this has ended, or wants no more of it."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready)


class File:
    """Takes blocks, past the cache of files where that can be done."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._direct, self._refused = -1, False
        with contextlib.suppress(OSError, AttributeError):
            self._direct = os.open(f"/proc/self/fd/{target}", os.O_WRONLY | os.O_DIRECT)

    def block_bytes(self, begin: int, at: int) -> int:
        """How much of a piece at ``begin`` in memory is best written at one go to ``at``."""
        paged = begin % PAGE_BYTES == at % PAGE_BYTES == 0
        direct = self._direct >= 0 and not self._refused
        return DIRECT_BYTES if direct and paged else BLOCK_BYTES

    def put(self, block: memoryview, at: int, begin: int) -> None:
        """Write ``block``, which is at ``begin`` in memory, to ``at``."""
        while block:
            count = self._write_directly(block, at) if begin % PAGE_BYTES == 0 else 0
            if count == 0:
                count = os.pwrite(self._target, block, at)
            block, at, begin = block[count:], at + count, begin + count

    def close(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)

    def _write_directly(self, block: memoryview, at: int) -> int:
        """How much of it could be written past the cache; 0 when that cannot be done."""
        size = len(block) // PAGE_BYTES * PAGE_BYTES
        if self._direct < 0 or self._refused or size == 0 or at % PAGE_BYTES:
            return 0
        try:
            return os.pwrite(self._direct, block[:size], at)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._refused = True  # a file system that opens files so, and then does not write them
            return 0


Piece = tuple[int, int, int, str]
NOT_LOOKED = "-"
"""As in ``notfinite``."""


class Work:
    """All pieces, by several threads: while one checksums (without the GIL) the disk takes what
    another has. ``looker`` makes a ``notfinite.Look`` for a type of numbers, or None."""

    def __init__(
        self,
        memory: memoryview,
        target: int,
        pieces: list[Piece],
        crc32: Callable[[memoryview, int], int] = zlib.crc32,
        looker: Callable[[str], Any] = lambda dtype: None,
    ) -> None:
        self._memory, self._file = memory, File(target)
        self._crc32, self._looker = crc32, looker
        self._left = enumerate(pieces)
        self._lock = threading.Lock()
        self._done, self._told_s = 0, 0.0
        self._untold: list[str] = []
        self._error: OSError | None = None

    def do(self) -> None:
        """Raises OSError for what the system refused first."""
        threads = [threading.Thread(target=self._take_part) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._file.close()
        if self._error is not None:
            raise self._error
        if self._untold:
            self._tell()

    def _take_part(self) -> None:
        try:
            while self._error is None:
                with self._lock:
                    index, piece = next(self._left, (-1, (0, 0, 0, "")))
                if index < 0:
                    return
                crc32, found = self._write(*piece)
                if self._error is None:  # else it may not be whole
                    with self._lock:
                        self._untold.append(f"d {index} {crc32} {found}")
        except OSError as error:
            self._error = self._error or error

    def _write(self, begin: int, size: int, at: int, dtype: str) -> tuple[int, str]:
        """Of one piece; returns its CRC-32 and what its numbers are."""
        crc32 = 0
        look = self._looker(dtype)
        block_bytes = self._file.block_bytes(begin, at)
        for start in range(0, size, block_bytes):
            end = min(start + block_bytes, size)
            for part in range(begin + start, begin + end, BLOCK_BYTES):
                behind = min(part + BLOCK_BYTES, begin + end)
                crc32 = self._crc32(self._memory[part:behind], crc32)
                if look is not None:
                    look.at(part, behind)
            self._file.put(self._memory[begin + start : begin + end], at + start, begin + start)
            self._wrote(end - start)
            if self._error is not None:
                break
        return crc32, NOT_LOOKED if look is None else look.found

    def _wrote(self, count: int) -> None:
        with self._lock:
            self._done += count
            if time.monotonic() - self._told_s > TELL_EVERY_S:
                if gone():
                    os._exit(0)
                self._tell()

    def _tell(self) -> None:
        """All that was not told yet, at one go: each time a thread of training's process wakes.
        Pieces last: behind the last one of all nothing more is heard of this file."""
        tell("\n".join([f"w {self._done}", *self._untold]))
        self._untold.clear()
        self._told_s = time.monotonic()


def fastest(found_in: str) -> Callable[[memoryview, int], int]:
    """The CRC-32 of the library in the directory ``found_in``; that of zlib where there is none."""
    if found_in:
        sys.path.append(found_in)
        with contextlib.suppress(ImportError):
            from isal.isal_zlib import crc32

            return crc32
    return zlib.crc32


def looker(memory: mmap.mmap) -> Callable[[str], Any]:
    """Makes a ``notfinite.Look`` at numbers in ``memory``; None where there is nothing to look at,
    or that file is not to be had: nobody's save fails for it."""
    found: Any = None
    with contextlib.suppress(Exception):
        beside = f"{__file__.rpartition('/')[0]}/notfinite.py"
        spec = importlib.util.spec_from_file_location("notfinite", beside)
        if spec is not None and spec.loader is not None:
            found = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)

    def strided(begin: int, end: int, step: int) -> bytes:
        return memory[begin:end:step]

    return lambda dtype: (
        None if found is None or dtype == NOT_LOOKED else found.Look(strided, dtype)
    )


def ordered(orders: socket.socket) -> tuple[int, list[Piece]]:
    """The next file and its pieces, once they are asked for; -1 when nothing will be any more."""
    size, descriptors, _, _ = socket.recv_fds(orders, SIZE_BYTES, 1)
    if not descriptors:
        return -1, []
    size += taken(SIZE_BYTES - len(size))
    lines = taken(int.from_bytes(size)).decode("ascii").splitlines()
    pieces = []
    for line in lines:
        begin, length, at, dtype = line.split()
        pieces.append((int(begin), int(length), int(at), dtype))
    return descriptors[0], pieces


def taken(count: int) -> bytes:
    """So many bytes from stdin; fewer when it has ended."""
    found = b""
    while len(found) < count and (more := os.read(0, count - len(found))):
        found += more
    return found


def main() -> None:
    source, politely = map(int, sys.argv[1:3])
    give_way(politely)
    crc32 = fastest(sys.argv[3])
    orders = socket.socket(fileno=os.dup(0))
    try:
        size = os.fstat(source).st_size
        mapped = mmap.mmap(source, size, prot=mmap.PROT_READ)
        memory, looks = memoryview(mapped), looker(mapped)
        while True:
            target, pieces = ordered(orders)
            if target < 0:
                return
            Work(memory, target, pieces, crc32, looks).do()
            if taken(len(SYNC)) == SYNC:
                os.fsync(target)
                tell("s")
            os.close(target)
    except OSError as error:
        tell(f"e {error.errno}")


if __name__ == "__main__":
    main()
