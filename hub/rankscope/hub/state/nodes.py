"""The machines of the run, as their sentinels describe them."""

from typing import Any

import msgspec

from rankscope.protocol import messages as m

MAX_NODES = 1 << 13
"""More than four times the nodes of the largest world this is built for."""

MAX_NOTE_CHARS = 512


class Sentinel(msgspec.Struct):
    """One sentinel: its host's readings, newest values."""

    node: str
    index: int
    """Its place in the sequence and clock columns."""
    host: str = ""
    pid: int | None = None
    """None until it said hello."""
    heard_s: float = 0.0
    excused_s: float = 0.0
    """Silence before this is explained; see ``silence.py``."""
    gpu_note: str = ""
    stack_note: str = ""
    gpus: tuple[m.GpuSample, ...] = ()
    load_1min: float | None = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    oom_kills: int | None = None


class LateEnd(msgspec.Struct, frozen=True):
    """A process of an earlier attempt whose end was reported after the next one began."""

    attempt: int
    rank: int
    host: str
    at_s: float
    exit_code: int | None
    signal: int | None
    oom_killed: bool


class Nodes:
    """Sentinels by their name; a host's newest one speaks for it."""

    def __init__(self) -> None:
        self.sentinels: dict[str, Sentinel] = {}
        self.by_host: dict[str, Sentinel] = {}
        """For each host the sentinel that was heard last."""

    def get(self, node: str) -> Sentinel | None:
        """The sentinel of that name, made when it is new; None when there are too many.

        A new one may get the place of one whose host has a newer sentinel: clear its columns.
        """
        sentinel = self.sentinels.get(node)
        if sentinel is None:
            index = len(self.sentinels)
            if index >= MAX_NODES:
                replaced = self._replaced()
                if replaced is None:
                    return None
                index = replaced.index
                del self.sentinels[replaced.node]
            sentinel = self.sentinels[node] = Sentinel(node, index)
        return sentinel

    def _replaced(self) -> Sentinel | None:
        for sentinel in self.sentinels.values():
            if sentinel.host and self.by_host.get(sentinel.host) is not sentinel:
                return sentinel
        return None

    def hello(self, sentinel: Sentinel, hello: m.NodeHello) -> None:
        sentinel.host = hello.host
        sentinel.pid = hello.pid
        sentinel.gpu_note = hello.gpu_note[:MAX_NOTE_CHARS]
        sentinel.stack_note = hello.stack_note[:MAX_NOTE_CHARS]

    def report(self, sentinel: Sentinel, report: m.NodeReport) -> None:
        sentinel.gpus = report.gpus
        sentinel.load_1min = report.load_1min
        sentinel.memory_available_bytes = report.memory_available_bytes
        sentinel.memory_limit_bytes = report.memory_limit_bytes
        sentinel.oom_kills = report.oom_kills

    def heard(self, sentinel: Sentinel, received_s: float) -> None:
        """It said something; from now on it speaks for its host."""
        sentinel.heard_s = received_s
        if sentinel.host:
            self.by_host[sentinel.host] = sentinel

    def dump(self) -> list[Any]:
        return [msgspec.to_builtins(sentinel) for sentinel in self.sentinels.values()]

    def load(self, saved: Any) -> None:
        sentinels = msgspec.convert(saved, list[Sentinel])
        self.sentinels = {sentinel.node: sentinel for sentinel in sentinels}
        if sorted(s.index for s in sentinels) != list(range(len(self.sentinels))):
            raise ValueError("sentinels out of order")
        self.by_host = {s.host: s for s in sorted(sentinels, key=lambda s: s.heard_s) if s.host}
