"""The agent's socket: a DEALER with CURVE that never waits. Used by one thread only."""

import math
import select

import zmq

from rankscope.agent.bell import Bell
from rankscope.agent.hublink import HubAddress
from rankscope.protocol import codec, limits
from rankscope.protocol.messages import Message

LINGER_MS = 200
SEND_QUEUE = 256
"""Messages libzmq may hold for a hub that is connected but slow."""


class Connection:
    """Open from construction to :meth:`close`. libzmq reconnects by itself."""

    def __init__(self, address: HubAddress) -> None:
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.DEALER)
        self._poll: select.poll | None = None  # of the socket, and of the one bell of its thread
        self._told = False  # nothing had come, and whatever comes makes the descriptor say so
        self._silent = False  # so it was until the last wait was over
        options: dict[int, int | bytes] = {
            zmq.LINGER: LINGER_MS,
            zmq.IPV6: "[" in address.endpoint,
            # Nothing is queued for a hub that is not there: it stays in the outbox, which knows
            # what to drop first.
            zmq.IMMEDIATE: 1,
            zmq.SNDHWM: SEND_QUEUE,
            zmq.RCVHWM: SEND_QUEUE,
            zmq.MAXMSGSIZE: limits.MAX_INBOUND_FRAME_BYTES,
            zmq.HEARTBEAT_IVL: 2500,
            zmq.HEARTBEAT_TIMEOUT: 5000,
            zmq.RECONNECT_IVL: 100,
            zmq.RECONNECT_IVL_MAX: 1000,
            zmq.CURVE_SERVERKEY: address.key.hub_public.encode("ascii"),
            zmq.CURVE_PUBLICKEY: address.key.public.encode("ascii"),
            zmq.CURVE_SECRETKEY: address.key.secret.encode("ascii"),
        }
        for option, value in options.items():
            self._socket.setsockopt(option, value)
        self._socket.connect(address.endpoint)

    def wait(self, wait_s: float, bell: Bell) -> bool:
        """Until the hub says something or the bell is rung, which is True, or the time is over.

        May also end early, with False.
        """
        if self._poll is None:
            # Half of what libzmq's own poll costs a thread that finds the caches cold.
            self._poll = select.poll()
            self._poll.register(int(self._socket.getsockopt(zmq.FD)), select.POLLIN)
            self._poll.register(bell.descriptor, select.POLLIN)
        # libzmq's descriptor tells of what came since this was asked, and of nothing before.
        if not self._told and self._has_come():
            return True
        ready = self._poll.poll(math.ceil(wait_s * 1000))
        self._silent = not ready
        for descriptor, _ in ready:
            if descriptor == bell.descriptor:
                bell.hush()
                return True
        return bool(ready) and self._has_come()

    def _has_come(self) -> bool:
        come = bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
        self._told = not come
        return come

    def takes(self) -> bool:
        """Whether the socket would take a frame now."""
        self._told = self._silent = False
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def send(self, frame: bytes) -> bool:
        """Whether the socket took ``frame``. False: no hub, or a queue that is full."""
        self._told = self._silent = False  # what came meanwhile may be told of to this call
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, wait_s: float = 0.0) -> list[Message]:
        """All messages that are there; with ``wait_s``, the first may take that long to come."""
        messages: list[Message] = []
        silent, self._silent = self._silent, False
        if silent and wait_s <= 0:
            return messages  # what has come since ends the next wait at once
        self._told = False
        if wait_s > 0 and not self._socket.poll(int(wait_s * 1000) or 1):
            return messages
        # Asked before, for nearly always there is nothing: an exception costs more than that.
        while self._has_come():
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            try:
                messages.append(codec.decode(frame))
            except codec.BadFrame:
                continue  # of a newer minor version, or nonsense: nothing an agent must act on
        return messages

    def close(self) -> None:
        """Waits at most ``LINGER_MS`` for what the socket still holds."""
        self._socket.close()
        self._context.term()
