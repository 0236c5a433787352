"""A bare listening end for agents: a CURVE ROUTER that keeps every message as it came.

with Listener(tmp_path) as hub:
    run_program(..., env=hub.environ)
    hub.of_kind(messages.Hello)
"""

import threading
import time
from pathlib import Path
from typing import Self, TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from rankscope.protocol import codec, env, keys
from rankscope.protocol import messages as m
from support.ports import free_port
from support.wire import wait_until

Found = TypeVar("Found", bound=m.Message)


class Listener:
    """Answers pings; everything else is only collected. ``environ`` leads an agent here."""

    def __init__(self, folder: Path, run: str = "run-1", endpoint: str | None = None) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self.run = run
        self.hub = keys.new_pair()
        self.client = keys.new_pair()
        self.key_path = folder / "agent.json"
        keys.write_client_key(
            self.key_path,
            keys.ClientKey("agent", run, self.client.public, self.client.secret, self.hub.public),
        )
        self.endpoint = endpoint or ""
        self.messages: list[m.Message] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._replies: list[m.Message] = []
        self._connected = 0

    @property
    def environ(self) -> dict[str, str]:
        return {
            env.RUN: self.run,
            env.ENDPOINT: self.endpoint,
            env.AGENT_KEY: str(self.key_path),
            env.HOME: str(self.folder / "home"),
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen (again, on the same endpoint)."""
        self._ending.clear()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def stop(self) -> None:
        """The listening end is gone at once, as if it had been killed."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(60)

    def reply(self, message: m.Message) -> None:
        """Send ``message`` to whoever is heard of next."""
        with self._lock:
            self._replies.append(message)

    def all(self) -> list[m.Message]:
        with self._lock:
            return list(self.messages)

    def heard_out(self) -> Self:
        """Wait until whoever has spoken is gone, and all it said is here.

        A process that has ended may have said more than this one has taken in yet.
        """
        wait_until(lambda: self._connected <= 0, "the end of every connection")
        return self

    def of_kind(self, kind: type[Found]) -> list[Found]:
        return [message for message in self.all() if isinstance(message, kind)]

    def of_rank(self, kind: type[Found], rank: int) -> list[Found]:
        return [one for one in self.of_kind(kind) if getattr(one, "rank", None) == rank]

    def steps(self, rank: int = 0) -> dict[int, m.StepRecord]:
        """The step records of ``rank`` by step, the last word on each."""
        return {step.step: step for beat in self.of_rank(m.Beat, rank) for step in beat.steps}

    def _serve(self, ready: threading.Event) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.curve_server = True
        socket.curve_secretkey = self.hub.secret.encode()
        socket.curve_publickey = self.hub.public.encode()
        self._connected = 0
        events = socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._bind(socket)
        ready.set()
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(events, zmq.POLLIN)
        try:
            while not self._ending.is_set():
                if not poller.poll(20):
                    continue
                # First what happened to connections: by the end of one, all that came is there.
                change = 0
                while events.poll(0):
                    opened = recv_monitor_message(events)["event"] == zmq.EVENT_ACCEPTED
                    change += 1 if opened else -1
                while socket.poll(0):
                    self._take(socket)
                self._connected += change
        finally:
            socket.disable_monitor()
            events.close(0)
            socket.close()
            context.term()

    def _take(self, socket: "zmq.Socket[bytes]") -> None:
        peer, frame = socket.recv_multipart()
        message = codec.decode(frame)
        if isinstance(message, m.Ping):
            socket.send_multipart([peer, codec.encode(m.Pong(message.t_s, time.time()))])
            return
        with self._lock:
            self.messages.append(message)
            replies, self._replies = self._replies, []
        for reply in replies:
            socket.send_multipart([peer, codec.encode(reply)])

    def _bind(self, socket: "zmq.Socket[bytes]") -> None:
        self.endpoint = self.endpoint or f"tcp://127.0.0.1:{free_port()}"
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.bind(self.endpoint)
                return
            except zmq.ZMQError:  # the port of the one before may take a moment to be free
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
