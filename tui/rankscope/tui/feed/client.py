"""A client of a hub: asks for views and gives commands over one DEALER socket with CURVE.

It reconnects by itself when the hub restarts, and a view that was under way is asked again. For
one thread at a time.
"""

import itertools
import re
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import zmq

from rankscope.protocol import codec, limits, messages, pasting, shapes
from rankscope.protocol.exits import UserError
from rankscope.protocol.keys import ClientKey
from rankscope.protocol.rundir import HubProcess
from rankscope.protocol.version import MAJOR
from rankscope.tui.feed.link import Event, LinkError, LinkState
from rankscope.tui.feed.naming import name_run
from rankscope.tui.feed.process import words

TIMEOUT_S = 5.0
NOBODY_PATIENCE_S = 2.5
"""A supervised hub is back within 2 s of being killed; beyond that nobody comes."""

_ENDPOINT = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")

_EVENTS: dict[int, Event] = {
    zmq.Event.CONNECT_DELAYED: "delayed",
    zmq.Event.CONNECTED: "connected",
    zmq.Event.HANDSHAKE_SUCCEEDED: "ready",
    zmq.Event.HANDSHAKE_FAILED_AUTH: "denied",
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "broken-handshake",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "broken-handshake",
    zmq.Event.CLOSED: "closed",
    zmq.Event.CONNECT_RETRIED: "retried",
    zmq.Event.DISCONNECTED: "lost",
}

_EVENT = struct.Struct("=Hi")
"""A monitor's first frame: event and value (zmq_socket_monitor(3)). pyzmq's own reader imports
asyncio, which would double the time this module takes to load."""

MAX_LEFT = 1000
"""So many frames are looked through for an answer when the time for it is over."""

Request = messages.ViewRequest | messages.CommandRequest | messages.Ping
Answer = messages.ViewReply | messages.CommandReply | messages.Pong

FATE_UNKNOWN = "whether it took the command is unknown: look with rankscope status"


def _of_command(error: LinkError, sent: bool) -> LinkError:
    """``error`` with what became of the command."""
    fate = FATE_UNKNOWN if sent else "the command was not given"
    return LinkError(error.cause, f"{error}; {fate}", error.exit_code)


@dataclass(frozen=True)
class Reply:
    """A hub's answer to one view request."""

    view: str
    version: int
    hub_s: float
    """The hub's clock when it answered: ages in ``body`` are as of it."""
    changed: bool
    body: shapes.Shape | None
    """The view's shape; None when nothing changed since the version asked with."""


def check_endpoint(endpoint: str) -> str:
    """``endpoint`` when it reads ``tcp://HOST:PORT``; else :class:`UserError`."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 1 <= int(match[2]) <= 65535:
        raise UserError(f"{endpoint!r} is no endpoint: it reads tcp://HOST:PORT")
    return endpoint


class HubClient:
    """One connection to the hub at ``endpoint``, let in by ``key``.

    Every trouble is a :class:`LinkError` (exit code 3, or 4 for no answer in time).
    """

    replay = False
    """Whether the answers come from a recording (see ``reach``)."""
    incidents: Path | None = None
    """The incident log of the run, where it is on this machine: whoever made the client says so."""

    def __init__(
        self,
        endpoint: str,
        key: ClientKey,
        *,
        run_words: str = "",
        timeout_s: float = TIMEOUT_S,
        process: HubProcess | None = None,
    ) -> None:
        """``run_words``: what commands name the run with that the hub suggests (``pasting``).
        ``process``: the hub's, where it is one of this machine."""
        self.endpoint = check_endpoint(endpoint)
        self.run_words = run_words
        self.role = key.role
        self.age_said = False
        """Whether the user knows already that a recording answers, and how old it is."""
        self._timeout_s = timeout_s
        self._process = process
        self._requests = itertools.count(1)
        self._link = LinkState(endpoint)
        self._gone: LinkError | None = None
        self._context = zmq.Context()
        socket = self._socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.immediate = True  # a request is never queued for a hub that is not there
        socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 500
        socket.heartbeat_ivl, socket.heartbeat_timeout = 1000, 5000
        socket.maxmsgsize = limits.MAX_REPLY_FRAME_BYTES
        socket.ipv6 = "[" in endpoint
        socket.curve_publickey = key.public.encode("ascii")
        socket.curve_secretkey = key.secret.encode("ascii")
        socket.curve_serverkey = key.hub_public.encode("ascii")
        self._monitor = socket.get_monitor_socket(sum(_EVENTS))
        self._poller = zmq.Poller()
        self._poller.register(self._monitor, zmq.POLLIN)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise UserError(f"{endpoint} is no endpoint: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection at once; a second call does nothing."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self._socket.close(linger=0)
            self._context.term()

    def superseded(self) -> bool:
        """Whether a better connection could be had by connecting anew: never for a live hub."""
        return False

    def ask(
        self,
        view: str,
        *,
        since: int = 0,
        args: dict[str, int | str] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """The newest ``view``; asked again by itself when the hub restarts meanwhile.

        Raises :class:`LinkError`, and :class:`UserError` when the hub has no such view or rank.
        """
        request = messages.ViewRequest(next(self._requests), view, since, args or {})
        answer = self._exchange(request, timeout_s, repeat=True)
        if not isinstance(answer, messages.ViewReply):
            raise LinkError("refused", f"the hub at {self.endpoint} answered out of turn")
        if answer.error:
            raise UserError(answer.error)
        body: shapes.Shape | None = None
        if answer.changed:
            try:
                body = msgspec.msgpack.decode(answer.body, type=shapes.VIEWS[view])
            except (msgspec.DecodeError, KeyError) as error:
                raise LinkError(
                    "refused",
                    f"cannot read the hub's {view} ({error}); use one rankscope version on both",
                ) from None
            name_run(body, self.run_words)
        return Reply(view, answer.version, answer.hub_s, answer.changed, body)

    def command(
        self,
        name: str,
        *,
        author: str,
        args: dict[str, int | str] | None = None,
        timeout_s: float | None = None,
    ) -> messages.CommandReply:
        """Give a command. It is sent once only: a lost connection leaves its fate unknown."""
        request = messages.CommandRequest(next(self._requests), name, author, args or {})
        answer = self._exchange(request, timeout_s, repeat=False)
        if not isinstance(answer, messages.CommandReply):
            raise LinkError("refused", f"the hub at {self.endpoint} answered out of turn")
        return msgspec.structs.replace(answer, text=self._named(answer.text))

    def _named(self, text: str) -> str:
        return pasting.named(text, self.run_words)

    def send(self, message: messages.Message, *, timeout_s: float | None = None) -> None:
        """Send a message that has no reply, and wait until the hub has it.

        A ping follows it: the hub reads one peer's messages in order, so its pong tells.
        """
        self._exchange(messages.Ping(time.monotonic()), timeout_s, repeat=True, first=message)

    def _exchange(
        self,
        request: Request,
        timeout_s: float | None,
        *,
        repeat: bool,
        first: messages.Message | None = None,
    ) -> Answer:
        if self._gone is not None:
            raise self._gone
        waited_s = self._timeout_s if timeout_s is None else timeout_s
        frames = [codec.encode(message) for message in (first, request) if message is not None]
        start_s = time.monotonic()
        gone_s: float | None = None  # since when it is seen that nobody is there
        sent = False
        while True:
            now_s = time.monotonic()
            elapsed_s = now_s - start_s
            if not self._link.nobody:
                gone_s = None
            elif gone_s is None:
                gone_s = now_s
            given_up = gone_s is not None and now_s - gone_s >= NOBODY_PATIENCE_S
            if elapsed_s >= waited_s or given_up:
                answer = self._left(request) if sent else None
                if answer is not None:  # this process was away: the hub was not silent
                    return answer
                error = self._link.timed_out(elapsed_s, words(self._process))
                if not repeat:
                    error = _of_command(error, sent)
                named = self._named(str(error)), error.exit_code, self._named(error.standing)
                raise LinkError(error.cause, *named)
            self._poller.register(self._socket, zmq.POLLIN if sent else zmq.POLLIN | zmq.POLLOUT)
            ready = dict(self._poller.poll(min(100, int((waited_s - elapsed_s) * 1000) + 1)))
            if self._monitor in ready and self._lost_link() and sent:
                if not repeat:
                    raise LinkError(
                        "lost",
                        self._named(f"the hub at {self.endpoint} went away; {FATE_UNKNOWN}"),
                    )
                sent = False
                continue
            events = ready.get(self._socket, 0)
            if events & zmq.POLLIN:
                answer = self._receive(request)
                if answer is not None:
                    return answer
            if not sent and events & zmq.POLLOUT:
                sent = all(self._send(frame) for frame in frames)

    def _left(self, request: Request) -> Answer | None:
        """The answer to ``request`` if it is among what has come and was not looked at."""
        for _ in range(MAX_LEFT):
            if not self._socket.poll(0):
                break
            answer = self._receive(request)
            if answer is not None:
                return answer
        return None

    def _send(self, frame: bytes) -> bool:
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _lost_link(self) -> bool:
        """Take in the monitor's events; True when the connection was lost."""
        lost = False
        try:
            while self._monitor.poll(0):
                frames = self._monitor.recv_multipart()
                event = _EVENTS.get(_EVENT.unpack(frames[0])[0])
                if event is not None:
                    self._link.note(event)
                    lost = lost or event == "lost"
        except LinkError as error:
            self._gone = error
            raise
        return lost

    def _receive(self, request: Request) -> Answer | None:
        """The answer to ``request`` if it has come; answers to earlier ones are thrown away."""
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
            answer = codec.decode(b"".join(frames), limits.MAX_REPLY_FRAME_BYTES)
        except zmq.Again:
            return None
        except codec.OtherMajor as error:
            raise LinkError(
                "refused",
                f"the hub at {self.endpoint} speaks protocol {error.major}, this rankscope "
                f"{MAJOR}: use the version the hub has",
            ) from None
        except codec.BadFrame:
            return None
        match answer:
            case messages.Refused():
                raise LinkError("refused", answer.text)
            case messages.Pong() if isinstance(request, messages.Ping):
                return answer if answer.t_s == request.t_s else None
            case messages.ViewReply() | messages.CommandReply():
                if not isinstance(request, messages.Ping) and answer.request == request.request:
                    return answer
        return None
