"""The sentinel's one socket: a CURVE DEALER that never waits and knows when a hub is new."""

import contextlib

import zmq
import zmq.utils.monitor

from rankscope.protocol import codec, limits
from rankscope.protocol.exits import UserError
from rankscope.protocol.keys import ClientKey
from rankscope.protocol.messages import Message

LINGER_MS = 200
MAX_FRAMES_PER_DRAIN = 256


class Link:
    """Sends frames to the hub at ``endpoint``, reconnecting for ever.

    Nothing is queued while there is no connection (``IMMEDIATE``): :meth:`send` says so instead,
    and what matters is told again once :meth:`met` reports a new connection. Until that was asked
    nothing is sent over it: a new hub is to hear first who speaks.
    """

    def __init__(self, endpoint: str, key: ClientKey) -> None:
        """Raises :class:`UserError` when the endpoint is none."""
        self._context = zmq.Context(io_threads=1)
        self.socket = self._context.socket(zmq.DEALER)
        options: dict[int, int | bytes] = {
            zmq.LINGER: LINGER_MS,
            zmq.IPV6: "[" in endpoint,
            zmq.IMMEDIATE: 1,
            zmq.SNDHWM: 1000,
            zmq.MAXMSGSIZE: limits.MAX_REPLY_FRAME_BYTES,
            zmq.HEARTBEAT_IVL: 2500,
            zmq.HEARTBEAT_TIMEOUT: 5000,
            zmq.RECONNECT_IVL: 50,
            zmq.RECONNECT_IVL_MAX: 1000,
            zmq.CURVE_SERVERKEY: key.hub_public.encode("ascii"),
            zmq.CURVE_PUBLICKEY: key.public.encode("ascii"),
            zmq.CURVE_SECRETKEY: key.secret.encode("ascii"),
        }
        for option, value in options.items():
            self.socket.setsockopt(option, value)
        self._up = self._met = False
        self.monitor = self.socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self.monitor.setsockopt(zmq.LINGER, 0)
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise UserError(f"cannot connect to {endpoint!r}: {error.strerror}") from None

    def send(self, message: Message) -> bool:
        """Send now or not at all; False when the hub is away, or is a new one that was not met."""
        self._look()
        if not self._up or self._met:
            return False
        try:
            self.socket.send(codec.encode(message), zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def descriptors(self) -> tuple[int, int]:
        """Can be read when something has come, or the connection changed, since :meth:`has_come`
        and :meth:`met` said no; they say nothing of what had come before."""
        own, monitor = self.socket.getsockopt(zmq.FD), self.monitor.getsockopt(zmq.FD)
        return int(own), int(monitor)

    def has_come(self) -> bool:
        """Whether the hub has said something that was not drained."""
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def drain(self) -> list[Message]:
        """What the hub has said since; frames that are none are ignored."""
        found: list[Message] = []
        for _ in range(MAX_FRAMES_PER_DRAIN):
            if not self.has_come():
                break
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                break
            if len(parts) == 1:
                with contextlib.suppress(codec.BadFrame):
                    found.append(codec.decode(parts[0], limits.MAX_REPLY_FRAME_BYTES))
        return found

    def met(self) -> bool:
        """Whether a connection was made since the last call."""
        self._look()
        met, self._met = self._met, False
        return met

    def _look(self) -> None:
        """Take in what became of the connection: its loss is told well before it is made anew."""
        while int(self.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            try:
                event = zmq.utils.monitor.recv_monitor_message(self.monitor, zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            self._up = event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._met = self._up

    def close(self) -> None:
        """Gives what was sent 200 ms to leave."""
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(LINGER_MS)
        self._context.term()
