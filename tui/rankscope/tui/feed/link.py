"""What a socket's monitor tells about the connection to a hub, in words a user can act on.

Pure: it is fed events and says what is wrong; it owns no socket. What libzmq reports for each
trouble was measured (libzmq 4.3.5): a key the hub does not admit gives ``HANDSHAKE_FAILED_AUTH``
with 400 and no further try; a hub with another key than the client expects closes the connection
during the handshake (``HANDSHAKE_FAILED_NO_DETAIL``) and libzmq tries again; a closed port gives
``CLOSED``, a host name that leads nowhere only ``CONNECT_RETRIED``; a stopped hub accepts (the
kernel does) and never says a word.
"""

from typing import Literal

from rankscope.protocol.exits import Exit, UserError

Event = Literal[
    "delayed", "connected", "ready", "denied", "broken-handshake", "closed", "retried", "lost"
]
Cause = Literal["nobody", "denied", "other-hub", "silent", "refused", "lost", "address"]

BROKEN_HANDSHAKES = 2
"""One may be a hub that is just ending; the second in a row means that the keys do not match."""


class LinkError(UserError):
    """The hub cannot be reached or does not answer: one line, exit code 3 or 4."""

    def __init__(
        self,
        cause: Cause,
        text: str,
        exit_code: Exit = Exit.UNREACHABLE,
        standing: str = "",
    ) -> None:
        """``standing``: the same without how long it was waited, for where it goes on and is shown
        beside how long it has; empty where ``text`` says nothing of time."""
        super().__init__(text, exit_code)
        self.cause = cause
        self.standing = standing or text


class LinkState:
    """Follows one connection by its events."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.ready = False
        self._connected = False
        self._tried = False
        self._closed = False
        self._broken = 0

    def note(self, event: Event) -> None:
        """Take in one event; raises :class:`LinkError` when waiting longer is of no use."""
        match event:
            case "delayed":
                self._tried = True
            case "connected":
                self._connected, self._closed = True, False
            case "ready":
                self.ready, self._broken = True, 0
            case "denied":
                raise self.denied()
            case "broken-handshake":
                self._broken += 1
                if self._broken >= BROKEN_HANDSHAKES:
                    raise LinkError(
                        "other-hub",
                        f"what listens at {self.endpoint} is not the hub this key file belongs to; "
                        "take the endpoint and the key of one run (rankscope ls)",
                    )
            case "closed":
                self._closed, self._connected, self.ready = True, False, False
            case "lost":
                self._connected, self.ready = False, False
            case "retried":
                pass

    @property
    def nobody(self) -> bool:
        """Whether the newest try was turned away: the port is closed, or there is no such host."""
        return self._closed or not self._tried

    def denied(self) -> LinkError:
        return LinkError(
            "denied",
            f"the hub at {self.endpoint} does not admit this key; use the key file of that run "
            "(keys/viewer.json in its directory; its owner has it)",
        )

    def timed_out(self, waited_s: float, process: str = "") -> LinkError:
        """Why there was no answer within ``waited_s``. ``process``: what the hub's process does and
        what would help, where that is known (``feed.process``)."""
        if process and (self.ready or self._connected):
            return _silent(
                f"no word from the hub at {self.endpoint}", f" for {waited_s:.1f} s", f": {process}"
            )
        if self.ready:
            return _silent(
                f"no answer from the hub at {self.endpoint}",
                f" within {waited_s:.1f} s",
                "; is it stopped or overloaded? its hub.log may tell",
            )
        if self._connected:
            return _silent(
                f"{self.endpoint} takes connections but says nothing",
                f" for {waited_s:.1f} s",
                "; is the hub stopped, or is that another program's port?",
            )
        if self._tried:
            return LinkError(
                "nobody",
                f"nobody listens at {self.endpoint}; the hub has ended or is out of reach "
                "(rankscope ls shows what is live)",
            )
        return LinkError(
            "address", f"there is no host at {self.endpoint}; check its name and your network"
        )


def _silent(who: str, how_long: str, what: str) -> LinkError:
    return LinkError("silent", f"{who}{how_long}{what}", Exit.TIMED_OUT, f"{who}{what}")
