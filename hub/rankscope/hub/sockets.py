"""The hub's sockets: one ROUTER with CURVE for all peers, one REP for ZAP."""

import errno
import math
import time
from collections.abc import Iterator, Mapping

import zmq

from rankscope.hub import ports, zap
from rankscope.protocol import limits
from rankscope.protocol.exits import UserError
from rankscope.protocol.keys import KeyPair, Role

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ENCRYPTION_BYTES = 256
"""An encrypted frame is a little longer than what is in it."""

LINGER_MS = 200
REPLIES_QUEUED = 16
"""Replies that wait for one peer; a slow client loses its own beyond that."""

MESSAGES_QUEUED = 1000
"""Messages of one peer that wait for the hub; beyond that the peer's own queue fills."""

REBIND_S = 3.0


class Sockets:
    """Opened by ``bind``, closed by ``close``. ``receive`` and ``send`` never wait."""

    def __init__(self, pair: KeyPair, roles: Mapping[bytes, Role]) -> None:
        self._roles = roles
        self._context = zmq.Context(io_threads=1)
        self._zap = self._context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind(ZAP_ENDPOINT)
        router = self._router = self._context.socket(zmq.ROUTER)
        router.linger = LINGER_MS
        router.maxmsgsize = limits.MAX_INBOUND_FRAME_BYTES + ENCRYPTION_BYTES
        router.sndhwm = REPLIES_QUEUED
        router.rcvhwm = MESSAGES_QUEUED
        router.backlog = 1024
        router.handshake_ivl = 5000
        router.heartbeat_ivl = 2500
        router.heartbeat_timeout = 5000
        router.tcp_keepalive = 1
        router.zap_domain = b"rankscope"
        router.curve_server = 1
        router.curve_publickey = pair.public.encode("ascii")
        router.curve_secretkey = pair.secret.encode("ascii")
        self._poller = zmq.Poller()
        self._poller.register(self._zap, zmq.POLLIN)
        self._poller.register(router, zmq.POLLIN)

    def bind(self, address: str, port: int | None, retry_s: float = 0.0) -> int:
        """Listen on ``address``; the port, which is a free one when None was given.

        Raises :class:`UserError`; a port in use is tried again for ``retry_s``.
        """
        host = f"[{address}]" if ":" in address else address
        self._router.ipv6 = ":" in address
        deadline = time.monotonic() + retry_s
        others = ports.here() if port is None else []
        while True:
            wanted = others.pop() if others else port
            try:
                self._router.bind(f"tcp://{host}:{'*' if wanted is None else wanted}")
                break
            except zmq.ZMQError as error:
                if error.errno == errno.EADDRINUSE and wanted != port:
                    continue
                if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise UserError(_why_not(error, address, port)) from None
        endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        return int(endpoint.rstrip("\0").rsplit(":", 1)[1])

    def watch(self, descriptor: int) -> None:
        """Let ``poll`` return also when this file descriptor can be read."""
        self._poller.register(descriptor, zmq.POLLIN)

    def poll(self, timeout_s: float) -> set[object]:
        """Wait for something to do; ZAP requests are answered here. What is readable."""
        try:
            # Rounded up: who woke within the last millisecond would go round and round until it
            # is over.
            waited = self._poller.poll(max(0, math.ceil(timeout_s * 1000)))
            ready = {source for source, _ in waited}
        except zmq.ZMQError as error:
            if error.errno == errno.EINTR:
                return set()
            raise
        if self._zap in ready:
            self._answer_zap()
        return ready

    def receive(self) -> Iterator[tuple[bytes, str, bytes | None]]:
        """What has come: (peer, role, frame); frame None for a multipart message.

        Each is taken from libzmq when the one before was dealt with; peers take turns.
        """
        router = self._router
        # Asked before, for mostly little has come: to find nothing there costs more than that.
        while int(router.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            try:
                peer = router.recv(zmq.NOBLOCK)
                # The payload's metadata, and not the routing id's, names who sent it.
                frame = router.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                role = str(frame.get("User-Id"))
            except zmq.ZMQError:
                role = ""
            if frame.more:
                while router.getsockopt(zmq.RCVMORE):
                    router.recv(zmq.NOBLOCK)
                yield peer, role, None
            else:
                yield peer, role, frame.bytes

    def send(self, peer: bytes, frame: bytes) -> None:
        """Send, or drop it when the peer is gone or takes nothing."""
        try:
            self._router.send_multipart([peer, frame], zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def _answer_zap(self) -> None:
        try:
            while True:
                request = self._zap.recv_multipart(zmq.NOBLOCK)
                self._zap.send_multipart(zap.answer(request, self._roles), zmq.NOBLOCK)
        except zmq.Again:
            pass

    def close(self) -> None:
        self._router.close(linger=LINGER_MS)
        # A handshake under way would wait for its answer for ever.
        self._zap.close(linger=0)
        self._context.term()


def _why_not(error: zmq.ZMQError, address: str, port: int | None) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {address} is in use by another program; "
            "choose another one with --port, or leave it out to get a free one"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {address} is not for ordinary users; choose one above 1023"
    return (
        f"cannot listen on {address}: {error.strerror}; "
        "--bind takes an address of this machine, such as 127.0.0.1 or 0.0.0.0"
    )
