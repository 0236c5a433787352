"""Reading files of the kernel's, which are small and made anew for each reader."""

import os

MOST_BYTES = 1 << 16
"""Read of one; the largest that is asked for has a few kilobytes."""


def read(path: str | os.PathLike[str]) -> bytes:
    """What is in it, at a third of what a file object takes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, MOST_BYTES)
    finally:
        os.close(descriptor)
