"""The last words of a rank that ended before the hub it had started was up.

The rank cannot wait for its hub: ending takes it 200 ms at most. So a process of its own waits, and
says for it what it had to say. ``python -m rankscope.agent.farewell RUN_DIR``, the frames on
standard input, each after its length (4 bytes, little-endian).
"""

import contextlib
import struct
import subprocess
import sys
import time
from pathlib import Path

from rankscope.agent.connection import Connection
from rankscope.agent.hublink import HubAddress
from rankscope.protocol import codec, launch, rundir
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.messages import Message, Ping, Pong

PATIENCE_S = 60.0
"""A hub that has not come by then does not come."""

POLL_S = 0.1
_LENGTH = struct.Struct("<I")


class Letter:
    """Takes frames in the place of a connection."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def takes(self) -> bool:
        return True

    def send(self, frame: bytes) -> bool:
        self.frames.append(frame)
        return True

    def receive(self, wait_s: float = 0.0) -> list[Message]:
        return []

    def leave(self, directory: rundir.RunDirectory) -> None:
        """Have the frames said to the hub of ``directory`` once it is there. Raises OSError."""
        process = subprocess.Popen(
            [*launch.python_module("rankscope.agent.farewell"), str(directory.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(b"".join(_LENGTH.pack(len(one)) + one for one in self.frames))
        process.returncode = 0  # it outlives us: no warning


def split(raw: bytes) -> list[bytes]:
    """The frames in what came through standard input; what is cut off is left out."""
    found, at = [], 0
    while at + _LENGTH.size <= len(raw):
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if at + length <= len(raw):
            found.append(raw[at : at + length])
        at += length
    return found


def say(directory: rundir.RunDirectory, frames: list[bytes]) -> bool:
    """Wait for the hub, and say ``frames`` to it; whether it has confirmed that it heard them."""
    until_s = time.monotonic() + PATIENCE_S
    while not rundir.hub_is_alive(info := directory.read_info()):
        if time.monotonic() >= until_s or info.ended_s is not None:
            return False
        time.sleep(POLL_S)
    assert info.endpoint is not None
    connection = Connection(HubAddress(directory.run, info.endpoint, directory.read_key("agent")))
    try:
        t_s = time.monotonic()
        for frame in [*frames, codec.encode(Ping(t_s))]:
            while not connection.send(frame):
                if time.monotonic() >= until_s:
                    return False
                time.sleep(POLL_S)
        while time.monotonic() < until_s:
            for message in connection.receive(POLL_S):
                if isinstance(message, Pong) and message.t_s == t_s:
                    return True
        return False
    finally:
        connection.close()


def main() -> int:
    frames = split(sys.stdin.buffer.read())
    try:
        return Exit.FINE if say(rundir.RunDirectory(Path(sys.argv[1])), frames) else Exit.USAGE
    except (UserError, OSError) as error:
        print(f"rankscope farewell: {error}", file=sys.stderr)
        return Exit.USAGE


if __name__ == "__main__":
    sys.exit(main())
