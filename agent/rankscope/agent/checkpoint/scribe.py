"""The program that writes one rank's tensors to its file, in a process of its own.

It is run by its path and knows the standard library alone. In a process of its own it never holds
the GIL of training, and may have the lowest priority there is without that anybody who waits for
that GIL has to wait for it.

Its arguments are two inherited descriptors, of the memory to read and the file to write, and how
politely it is to go about it: 2 takes what nobody else wants of a core, 1 a small share, 0 as much
as anybody. On stdin
comes a line for each piece, ``begin size at`` (bytes: where it is in the memory, how long it is,
where it goes in the file), and an empty line behind the last one. It answers with lines on stdout:

- ``w N``: so many bytes were written by now, of all pieces
- ``d I C``: piece I is written, its CRC-32 is C
- ``s``: all of it is on the disk, after a line ``s`` on stdin has asked for that
- ``e N``: the system refused with errno N, and this process has ended

It ends when its stdin does.
"""

import contextlib
import mmap
import os
import select
import sys
import time
import zlib

BLOCK_BYTES = 512 << 10
"""Checksummed and then written: from a core's own cache, not from memory a second time."""

TELL_EVERY_S = 0.2
NICENESS = {2: 19, 1: 10, 0: 0}
"""By politeness; where sessions have their own share of a core, of the session, too."""


def give_way(politely: int) -> None:
    """Let everybody else go first, as far as the system lets one ask for that."""
    niceness = NICENESS[politely]
    if niceness:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:  # noqa: PTH123
            file.write(str(niceness))
    if politely == 2:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def gone() -> bool:
    """Whether whoever started this has ended, or wants no more of it."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready)


def write(memory: memoryview, target: int, pieces: list[tuple[int, int, int]]) -> None:
    done, told_s = 0, 0.0
    for index, (begin, size, at) in enumerate(pieces):
        crc32 = 0
        for start in range(0, size, BLOCK_BYTES):
            block = memory[begin + start : begin + min(start + BLOCK_BYTES, size)]
            crc32 = zlib.crc32(block, crc32)
            to = at + start
            while block:
                count = os.pwrite(target, block, to)
                block, to, done = block[count:], to + count, done + count
            if time.monotonic() - told_s > TELL_EVERY_S:
                if gone():
                    os._exit(0)
                tell(f"w {done}")
                told_s = time.monotonic()
        tell(f"d {index} {crc32}")


def main() -> None:
    source, target, politely = map(int, sys.argv[1:])
    give_way(politely)
    told = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    pieces = []
    while (line := told.readline().strip()) != b"":
        begin, size, at = map(int, line.split())
        pieces.append((begin, size, at))
    size = os.fstat(source).st_size
    try:
        memory = mmap.mmap(source, size, prot=mmap.PROT_READ)
        write(memoryview(memory), target, pieces)
        if told.readline().strip() == b"s":
            os.fsync(target)
            tell("s")
    except OSError as error:
        tell(f"e {error.errno}")


if __name__ == "__main__":
    main()
