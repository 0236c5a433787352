"""``python -m rankscope.hub.analyze DIR [--world-size N]``: one JSON document on stdout."""

import argparse
import contextlib
import os
import resource
import stat
import sys
import threading
from pathlib import Path

from rankscope.hub.analyze.files import read_folder
from rankscope.hub.analyze.job import job_of
from rankscope.hub.analyze.verdict import analyse
from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit, UserError

LEAST_ROOM_BYTES = 1 << 30
ROOM_FOR_EACH_BYTE = 64
"""A dump of torch's takes some twenty times its size as objects of Python."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="rankscope.hub.analyze")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--world-size", type=int)
    given = parser.parse_args()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=end_with_the_asker, daemon=True).start()
    try:
        limit_memory(given.folder)
        dumps, notes = read_folder(given.folder)
        analysis = analyse(job_of(dumps, given.world_size), notes)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(jsontext.dumps(analysis))
    return Exit.FINE


def end_with_the_asker() -> None:
    """Standard input is a pipe whose other end is with whoever asked: it closes when that ends."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(Exit.INTERRUPTED)


def limit_memory(folder: Path) -> None:
    """So that no file can take more than its size explains."""
    size = 0
    if folder.is_dir():
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    most = pages * resource.getpagesize() + LEAST_ROOM_BYTES + ROOM_FOR_EACH_BYTE * size
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if sys.platform == "linux" and (hard == resource.RLIM_INFINITY or most < hard):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    sys.exit(main())
