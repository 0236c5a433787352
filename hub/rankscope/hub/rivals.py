"""Which connections speak for a rank that belongs to another process.

Only a hello names its process, so whatever else comes on the connection of a second one is kept
from the state, and from the recording.
"""

from rankscope.hub.state import RunState
from rankscope.protocol import messages as m

MAX_KNOWN = 1 << 16


class Rivals:
    """Told of every hello that the state has taken in."""

    def __init__(self) -> None:
        self._voices: dict[int, tuple[bytes, str, int]] = {}
        """For each rank the connection, host and pid of the process that is shown."""
        self._rivals: set[tuple[bytes, int]] = set()

    def speaks(self, peer: bytes, message: m.FromRank, attempt: int) -> bool:
        """Whether this is to be kept from the state; a hello never is, it may settle the matter."""
        return (
            bool(self._rivals)
            and (peer, message.rank) in self._rivals
            and message.attempt == attempt
            and type(message) is not m.Hello
        )

    def hello(self, peer: bytes, hello: m.Hello, state: RunState) -> None:
        """The state has decided whose rank it is."""
        if hello.attempt != state.attempt:
            return
        rank = hello.rank
        if len(self._rivals) >= MAX_KNOWN:
            self._rivals.clear()
        if not state.is_process(hello):
            self._rivals.add((peer, rank))
            return
        self._rivals.discard((peer, rank))
        before = self._voices.get(rank)
        if before is not None and before[0] != peer and before[1:] != (hello.host, hello.pid):
            self._rivals.add((before[0], rank))
        self._voices[rank] = (peer, hello.host, hello.pid)
