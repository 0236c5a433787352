"""Whether this process has room for libzmq, which aborts the process where it finds none.

libzmq takes descriptors, threads and memory with assertions: when one is not to be had it calls
``abort``, and the training with it is gone. So before it is started all of that is taken once, and
given back.
"""

import contextlib
import mmap
import os
import threading

SPARE_DESCRIPTORS = 32
"""libzmq takes about ten; the rest is for those that training opens meanwhile."""

SPARE_THREADS = 3
"""libzmq starts two, for good."""

SPARE_BYTES = 64 << 20
"""Address space beside the threads' stacks; none of it is touched."""


def lacking() -> str | None:
    """What is missing, and which limit to raise, in words; None when there is room."""
    with contextlib.ExitStack() as taken:
        try:
            for _ in range(SPARE_DESCRIPTORS):
                taken.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return f"fewer than {SPARE_DESCRIPTORS} files can be opened (ulimit -n)"
        enough = threading.Event()
        try:
            for _ in range(SPARE_THREADS):
                thread = threading.Thread(target=enough.wait, daemon=True)
                thread.start()
                taken.callback(thread.join)
                taken.callback(enough.set)
        except (RuntimeError, MemoryError):
            return f"fewer than {SPARE_THREADS} threads can be started (ulimit -u, -v)"
        try:
            taken.enter_context(mmap.mmap(-1, SPARE_BYTES))
        except (OSError, MemoryError):
            return f"less than {SPARE_BYTES >> 20} MiB of memory can be had (ulimit -v)"
    return None
