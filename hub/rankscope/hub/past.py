"""Views of a run as it was at any moment of its recording, for requests that name the moment."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from rankscope.hub import incidents
from rankscope.hub.core import Core
from rankscope.hub.recording import TICK
from rankscope.hub.restore import replay
from rankscope.hub.tape import NoTape, Position, Tape
from rankscope.protocol import codec, shapes
from rankscope.protocol import messages as m
from rankscope.protocol.exits import UserError
from rankscope.protocol.rundir import RunDirectory, RunInfo, hub_is_alive

DIAGNOSED_S = 5.0
"""The last seconds before a moment are diagnosed tick by tick, as they were then."""

AT = "at_ms"
"""The argument that names the moment, in milliseconds of the hub's clock."""

MOMENTS_AT_MOST = 1000


@dataclass
class _Now:
    """The moment that is shown."""

    core: Core
    position: Position
    at_s: float


class Past:
    """Moves a hub's core through a recording. Requests come through :meth:`core_at`."""

    def __init__(self, directory: RunDirectory, info: RunInfo) -> None:
        self._directory = directory
        self._info = info
        self._tape = Tape(directory.recording, info.run)
        self._now: _Now | None = None
        self._log = _Incidents(directory.incidents)
        self._version = 0

    def recording(self) -> shapes.Recording:
        """From when to when there is something, and what happened. Raises :class:`NoTape`."""
        first_s, last_s = self._tape.span()
        opened = [entry for entry in self._log.entries() if entry.event == "opened"]
        return shapes.Recording(
            first_s=first_s,
            last_s=last_s,
            growing=self._growing(),
            moments=[
                shapes.Moment(
                    at_s=entry.at_s,
                    severity=entry.finding.severity,
                    kind=entry.finding.kind,
                    headline=entry.finding.headline,
                )
                for entry in opened[-MOMENTS_AT_MOST:]
            ],
        )

    def core_at(self, at_s: float) -> tuple[Core, float]:
        """The hub as it was then, and the time that this is: within the recording.

        Raises :class:`NoTape`.
        """
        first_s, last_s = self._tape.span()
        at_s = min(max(at_s, first_s), last_s)
        now = self._now
        if now is None or now.at_s != at_s:
            now = self._now = self._move(now, at_s, last_s)
        return now.core, now.at_s

    def _move(self, now: _Now | None, at_s: float, last_s: float) -> _Now:
        held = None if now is None else now.position
        position, records = self._tape.go(at_s, held)
        state = position.state
        if now is None or position is not held:
            # Versions only grow, also when one goes back; nothing from before is known here.
            state.version = max(state.version, self._version) + 1
            core = Core(state, self._log.until(at_s), now_s=position.at_s)
        else:
            core = now.core
        for at, record in enumerate(records):
            if record.kind == TICK and at_s - record.hub_s <= DIAGNOSED_S:
                core.tick(record.hub_s)
            else:
                replay(state, records[at : at + 1])
        if at_s >= last_s and not self._growing():
            self._end(core, last_s)
        core.tick(at_s)
        # What was logged then, and not what the ticks above would have logged.
        core.know.incidents = self._log.until(at_s)
        state.version += 1
        state.head_changed = state.version
        self._version = state.version
        return _Now(core, position, at_s)

    def _end(self, core: Core, last_s: float) -> None:
        """What only ``run.json`` knows of the end."""
        state, info = core.state, self._info
        if state.run_end is None and info.exit_code is not None:
            state.run_end = m.RunEnd(info.exit_code)
            state.run_end_s = info.ended_s or last_s

    def _growing(self) -> bool:
        """Whether the run goes on, and with it its recording."""
        try:
            info = self._directory.read_info()
        except UserError:
            return False
        return info.ended_s is None and hub_is_alive(info)


class PastServer:
    """What :func:`~.server.serve_replay` talks to: a request with ``at_ms`` is answered as of then,
    any other by the hub as the recording left it."""

    def __init__(self, past: Past, end: Core) -> None:
        self._past = past
        self._end = end
        self.outbox = end.outbox

    def junk(self, peer: bytes, role: str, what: str) -> None:
        self._end.junk(peer, role, what)

    def flush(self) -> None:
        self._end.flush()

    def receive(self, peer: bytes, role: str, frame: bytes, now_s: float) -> None:
        request = _request(frame)
        if request is None:
            self._end.receive(peer, role, frame, now_s)
            return
        try:
            if request.view == "recording":
                body = self._past.recording()
                self._answer(peer, request, 1, now_s, msgspec.msgpack.encode(body))
                return
            core, at_s = self._past.core_at(float(request.args[AT]) / 1000)
        except (NoTape, ValueError) as error:
            self._answer(peer, request, 0, now_s, None, str(error))
            return
        core.receive(peer, role, frame, at_s)
        self.outbox += core.outbox
        core.outbox.clear()

    def _answer(
        self,
        peer: bytes,
        request: m.ViewRequest,
        version: int,
        now_s: float,
        body: bytes | None,
        error: str = "",
    ) -> None:
        raw = msgspec.Raw(b"\xc0" if body is None else body)
        reply = m.ViewReply(
            request.request, request.view, version, now_s, body is not None, raw, error
        )
        self.outbox.append((peer, codec.encode(reply)))


def _request(frame: bytes) -> m.ViewRequest | None:
    """The request in ``frame`` when it is one for the past."""
    try:
        message = codec.decode(frame)
    except codec.BadFrame:
        return None
    if not isinstance(message, m.ViewRequest):
        return None
    return message if message.view == "recording" or AT in message.args else None


class _Incidents:
    """The log of a run, read again when it has grown."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = -1
        self._entries: list[shapes.Incident] = []

    def entries(self) -> list[shapes.Incident]:
        try:
            size = self._path.stat().st_size
        except OSError:
            size = 0
        if size != self._size:
            self._size, self._entries = size, incidents.read(self._path)
        return self._entries

    def until(self, at_s: float) -> incidents.Incidents:
        return incidents.Incidents(entry for entry in self.entries() if entry.at_s <= at_s)
