"""A CURVE ROUTER that stands where a hub would: it keeps what a sentinel says and can answer."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import zmq

from rankscope.protocol import codec
from rankscope.protocol.keys import ClientKey, KeyPair, new_pair
from rankscope.protocol.messages import FromNode, Message, NodeHello, NodeReport, ProcessEnded
from support.ports import free_port

M = TypeVar("M", bound=Message)


class NodeRouter:
    """Bound to loopback while inside ``with``; :meth:`away` and :meth:`back` act a restart."""

    def __init__(self, run: str = "run", port: int | None = None) -> None:
        self.hub: KeyPair = new_pair()
        pair = new_pair()
        self.key = ClientKey("agent", run, pair.public, pair.secret, self.hub.public)
        self.received: list[tuple[float, Message]] = []
        """Monotonic time of arrival here, and what came, in order."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket: zmq.Socket[Any] | None = None
        self._peers: set[bytes] = set()
        self.endpoint = ""

    def __enter__(self) -> "NodeRouter":
        self.back()
        return self

    def __exit__(self, *exception: object) -> None:
        self.away()
        self._context.term()

    def back(self) -> None:
        """Listen, on the same endpoint as before."""
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        router.setsockopt(zmq.CURVE_SERVER, 1)
        router.setsockopt(zmq.CURVE_SECRETKEY, self.hub.secret.encode("ascii"))
        self.endpoint = self.endpoint or f"tcp://127.0.0.1:{free_port()}"
        deadline = time.monotonic() + 60
        while True:
            try:
                router.bind(self.endpoint)
                break
            except zmq.ZMQError:  # the old one has not let go of the port yet
                if time.monotonic() > deadline:
                    router.close()
                    raise
                time.sleep(0.02)
        self._socket = router

    def away(self) -> None:
        """Stop listening; connections break."""
        if self._socket is not None:
            self._socket.close(0)
            self._socket = None
        self._peers.clear()

    def say(self, message: Message) -> None:
        """To every peer that has spoken."""
        assert self._socket is not None
        for peer in self._peers:
            self._socket.send_multipart([peer, codec.encode(message)])

    def pump(self, seconds: float) -> None:
        """Take what comes within ``seconds``, or until the first message came."""
        assert self._socket is not None
        if self._socket.poll(int(seconds * 1000)):
            while True:
                try:
                    peer, frame = self._socket.recv_multipart(zmq.NOBLOCK)
                except zmq.ZMQError:
                    return
                self._peers.add(peer)
                self.received.append((time.monotonic(), codec.decode(frame)))

    def wait_for(self, condition: Callable[[], object], within_s: float = 60.0) -> Any:
        """The first true value of ``condition``, which looks at :attr:`received`."""
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            assert time.monotonic() < deadline, [type(m).__name__ for _, m in self.received][-20:]
            self.pump(0.05)
        return found

    def all(self, kind: type[M]) -> list[M]:
        return [message for _, message in self.received if isinstance(message, kind)]

    def hellos(self) -> list[NodeHello]:
        return self.all(NodeHello)

    def reports(self) -> list[NodeReport]:
        return self.all(NodeReport)

    def deaths(self) -> list[ProcessEnded]:
        """Each process's end as it was told first; a sentinel repeats them to a hub it meets."""
        first: dict[tuple[int, int, int], ProcessEnded] = {}
        for death in self.all(ProcessEnded):
            first.setdefault((death.attempt, death.rank, death.pid), death)
        return list(first.values())

    def wait_for_death(self, rank: int, attempt: int = 0) -> ProcessEnded:
        def found() -> ProcessEnded | None:
            return next((d for d in self.deaths() if (d.attempt, d.rank) == (attempt, rank)), None)

        death: ProcessEnded = self.wait_for(found)
        return death

    def wait_for_state(self, rank: int, state: str, attempt: int = 0) -> None:
        """Until the newest report has ``rank`` in ``state``."""

        def found() -> bool:
            newest = self.reports()[-1:]
            return any(
                (p.attempt, p.rank, p.state) == (attempt, rank, state)
                for report in newest
                for p in report.processes
            )

        self.wait_for(found)

    def numbers(self) -> list[int]:
        """The sequence numbers, as they came."""
        return [message.seq for _, message in self.received if isinstance(message, FromNode)]
