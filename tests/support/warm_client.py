# Above this warm.py writes ADDRESS.
# It is called like Python, has a fork of the server be that process, and ends as the fork does.
import array
import contextlib
import json
import os
import resource
import signal
import socket
import sys

READ_IN_IMPORT = (
    "CXX",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "TORCH_LOGS",
    "TORCH_COMPILE",
    "PYTORCH_",
)
"""Variables of which torch makes something while it is imported: with them, start from nothing."""

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def main(address: str) -> None:
    if any(name.startswith(READ_IN_IMPORT) for name in os.environ):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect("\0" + address)
    words: dict[str, object] = {
        "argv": sys.argv[1:],
        "environ": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109
        "parent": os.getppid(),
    }
    request = json.dumps(words).encode("utf-8", "surrogateescape")
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    server.sendmsg([len(request).to_bytes(4, "big")], streams)
    server.sendall(request)

    def hand_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):  # the fork has just ended
            server.sendall(bytes([number]))

    for number in HANDED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hand_on)
    status = b""
    while len(status) < 4:
        part = server.recv(4 - len(status))
        if not part:
            os.write(2, b"the server of warm.py is gone\n")
            os._exit(70)
        status += part
    code = int.from_bytes(status, "big", signed=True)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main(ADDRESS)  # type: ignore[name-defined]  # noqa: F821, above
