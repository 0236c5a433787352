"""The hub without its sockets: frames in, frames out, and a diagnosis now and then.

``receive`` and ``tick`` take the time as an argument; what is to be sent collects in ``outbox``.
"""

import copy
import traceback
from collections.abc import Callable

import msgspec
import numpy as np

from rankscope.hub import commands, gone, inquiries, liveness, possible, snapshot, standing, views
from rankscope.hub.blind import blind_time
from rankscope.hub.diagnose import diagnose
from rankscope.hub.diagnose.rank_dead import late_finding
from rankscope.hub.diagnose.stalled import stalled
from rankscope.hub.incidents import IncidentFile, Incidents
from rankscope.hub.log import Log
from rankscope.hub.orders import Orders
from rankscope.hub.parity import parity_entry
from rankscope.hub.recording import Recorder
from rankscope.hub.rivals import Rivals
from rankscope.hub.runstate import ENDED, ended_s, exit_code, last_rank_ended_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.plausible import BadMessage
from rankscope.hub.state.silence import LOST_S
from rankscope.hub.toldtoend import told_to_end
from rankscope.hub.views.checkpoints import last as last_checkpoint
from rankscope.protocol import codec, limits
from rankscope.protocol import messages as m
from rankscope.protocol.shapes import VIEWS, Incident
from rankscope.protocol.version import MAJOR

ASK_WHO_EVERY_S = 1.0
MAX_ASKED = 1 << 20

ALLOWED = {role: frozenset(m.TYPES[kind] for kind in kinds) for role, kinds in m.ROLES.items()}
NOTHING: frozenset[type[m.Message]] = frozenset()
RUN_OVER = codec.encode(m.RunOver())


class Core:
    """What a hub does with a frame, whoever carried it here."""

    def __init__(
        self,
        state: RunState,
        incidents: Incidents,
        *,
        now_s: float,
        recorder: Recorder | None = None,
        incident_file: IncidentFile | None = None,
        log: Log | None = None,
    ) -> None:
        self.state = state
        self.know = views.Knowledge(state, incidents, [], now_s)
        self.outbox: list[tuple[bytes, bytes]] = []
        """(peer, frame) pairs to be sent."""
        self.base_version = state.version
        self.client_s: float | None = None
        self.end_asked = False
        self.on_world_size: Callable[[int], None] | None = None
        """Told at every tick how many ranks the run has."""
        self.on_end: Callable[[float | None, int | None], None] | None = None
        """Told at every tick when the run ended (None while it goes on) and with which code."""
        self.launcher_lives: Callable[[], bool] = lambda: False
        """Asked at every tick."""
        self._recorder = recorder
        self._incident_file = incident_file
        self._log = log or Log()
        self._asked_s: dict[tuple[bytes, int], float] = {}
        self._sentinels: dict[str, bytes] = {}
        self._speakers: dict[int, bytes] = {}
        """Who spoke for each rank last."""
        self._rivals = Rivals()
        self._orders = Orders()
        self._told_over = self._is_over(now_s)
        self._links = liveness.links(state, now_s)
        self._word = run_state(state, now_s)
        self._seen_version = -1
        self._blind = state.blind[-1:]
        """The newest time in which no hub looked, which the log has where it is worth it."""
        self._recorded_tick_s = 0.0

    # --- frames -------------------------------------------------------------------------------

    def receive(self, peer: bytes, role: str, frame: bytes, now_s: float) -> None:
        """Act on one frame of ``peer``, whose key has ``role`` (empty: none)."""
        try:
            message = codec.decode(frame)
        except codec.OtherMajor as error:
            self._bad(peer, role, str(error))
            text = f"this hub speaks protocol {MAJOR}, you speak {error.major}: use one version"
            self.outbox.append((peer, codec.refusal(text)))
            return
        except codec.UnknownKind as error:
            self.state.unknown_kinds += 1
            self._log.once(f"unknown {error}", f"a peer with the {role} key sent a {error}")
            return
        except codec.BadFrame as error:
            self._bad(peer, role, str(error))
            return
        if type(message) not in ALLOWED.get(role, NOTHING):
            name = m.KINDS[type(message)].name.lower()
            self._bad(peer, role, f"{name} is not for the {role} key")
            text = f"the {role or 'unknown'} key may not send {name}"
            if role == "viewer" and isinstance(message, m.CommandRequest):
                text += (
                    ": it may only look; commands need the operator's (rankscope grant operator)"
                )
            self.outbox.append((peer, codec.refusal(text)))
            return
        if role == "agent":
            self._agent(peer, message, frame, now_s)
        else:
            self.client_s = now_s
            self._client(peer, message, now_s)

    def junk(self, peer: bytes, role: str, what: str) -> None:
        """Count something that is not even a frame."""
        self._bad(peer, role, what)

    def _bad(self, peer: bytes, role: str, why: str) -> None:
        self.state.bad_frames += 1
        self._log.once(
            f"bad {peer.hex()}", f"bad frame from a peer with the {role or 'unknown'} key: {why}"
        )

    def _agent(self, peer: bytes, message: m.Message, frame: bytes, now_s: float) -> None:
        if isinstance(message, m.Ping):
            self._pong(peer, message, now_s)
            return
        if isinstance(message, m.FromRank):
            message = self.state.lives.own(self.state, message)
            if self._rivals.speaks(peer, message, self.state.attempt):
                if not self.state.is_there(message.rank, now_s):
                    self._ask_who(peer, message.rank, now_s)
                return
        try:
            news = self.state.apply(message, now_s)
        except BadMessage as error:
            self._bad(peer, "agent", str(error))
            return
        except Exception:  # noqa: BLE001 - a bug in one handler must not end the hub
            self._bad(peer, "agent", "it brought up a bug in the hub")
            self._log.once("bug in apply", traceback.format_exc())
            return
        if news and self._recorder is not None:
            self._recorder.frame(now_s, frame)
        if isinstance(message, m.Hello):
            self._rivals.hello(peer, message, self.state)
        if isinstance(message, m.FromRank):
            self._speakers[message.rank] = peer
            if not self.state.knows_rank(message.rank):
                self._ask_who(peer, message.rank, now_s)
        elif isinstance(message, m.FromNode):
            self._sentinels[message.node] = peer
            sentinel = self.state.nodes.sentinels.get(message.node)
            if sentinel is not None and sentinel.pid is None:
                self._ask_who(peer, -1, now_s)
            if self._told_over and self._is_over(now_s):
                self.outbox.append((peer, RUN_OVER))
        if not self._told_over and self._is_over(now_s):
            self._told_over = True
            for sentinel_peer in set(self._sentinels.values()):
                self.outbox.append((sentinel_peer, RUN_OVER))

    def _is_over(self, now_s: float) -> bool:
        """Whether the launcher's command has ended, and whoever outlived it."""
        return self.state.run_end is not None and run_state(self.state, now_s) in ENDED

    def _ask_who(self, peer: bytes, rank: int, now_s: float) -> None:
        key = (peer, rank)
        if now_s - self._asked_s.get(key, -1e9) < ASK_WHO_EVERY_S:
            return
        if len(self._asked_s) >= MAX_ASKED:
            self._asked_s.clear()
        self._asked_s[key] = now_s
        self.outbox.append((peer, codec.encode(m.WhoAreYou(rank))))

    def _pong(self, peer: bytes, ping: m.Ping, now_s: float) -> None:
        self.outbox.append((peer, codec.encode(m.Pong(ping.t_s, now_s))))

    def _client(self, peer: bytes, message: m.Message, now_s: float) -> None:
        if isinstance(message, m.Ping):
            self._pong(peer, message, now_s)
        elif isinstance(message, m.ViewRequest):
            self.outbox.append((peer, self._view(message, now_s)))
        elif isinstance(message, m.CommandRequest):
            accepted, text, reference = self._command(message, now_s)
            reply = m.CommandReply(message.request, accepted, text, reference)
            self.outbox.append((peer, codec.encode(reply)))

    def _view(self, request: m.ViewRequest, now_s: float) -> bytes:
        version = self.state.version
        body, changed, error = msgspec.Raw(b"\xc0"), False, ""
        try:
            if request.since != version or request.view not in VIEWS:
                shape = views.view(self.know, request, self.base_version, now_s)
                body, changed = views.encoded(shape), True
                if len(body) > limits.MAX_REPLY_FRAME_BYTES - limits.MAX_TEXT_CHARS:
                    raise views.NoSuchView(f"the view {request.view} is too large for any client")
        except views.NoSuchView as problem:
            body, changed = msgspec.Raw(b"\xc0"), False
            error = str(problem)[: limits.MAX_TEXT_CHARS]
        except Exception:  # noqa: BLE001 - one view's bug must not end the hub
            error = f"the hub has a bug in its view {request.view}; see hub.log"
            self._log.once(f"bug in view {request.view}", traceback.format_exc())
        return codec.encode(
            m.ViewReply(request.request, request.view, version, now_s, changed, body, error)
        )

    def _command(self, request: m.CommandRequest, now_s: float) -> tuple[bool, str, int]:
        """Whether it is accepted, in words, and what it is called in views."""
        over = run_state(self.state, now_s) in ENDED
        if request.command in possible.COMMANDS:
            name, author = request.command, request.author or "somebody"
            answer = self._orders.ask(self.state, name, author, request.args, now_s)
            self._log.say(f"{name} asked for by {author}: {answer.text}")
            self._commanded(commands.asked(name, author, answer, self.state, now_s), now_s)
            self._order(now_s)
            return answer
        if request.command != "end-hub":
            return False, f"there is no command {request.command!r}"[: limits.MAX_TEXT_CHARS], 0
        if not over:
            return False, "the run is not over", 0
        self.end_asked = True
        return True, "the hub ends", 0

    def _order(self, now_s: float) -> None:
        """Pass the operator's request in work on to the ranks that have not heard of it."""
        for over in self._orders.settle(self.state, now_s):
            self._commanded(commands.ended(over, self.state.attempt, now_s), now_s)
        for lost in commands.lost(self.know.incidents, self._orders.known, now_s):
            self._commanded([lost], now_s)
        for rank, order in self._orders.due(self.state, now_s):
            speaker = self._speakers.get(rank)
            if speaker is not None:
                self.outbox.append((speaker, codec.encode(order)))
        pending = self._orders.shown
        text = self._orders.text(self.state, now_s)
        standing = pending is not None and pending is self._orders.pause
        if (text, pending, standing) != (self.know.pending, self.know.asked, self.know.standing):
            self.know.standing = standing
            self.know.pending = text
            self.know.asked = None if pending is None else copy.copy(pending)
            self.state.version += 1
            self.state.head_changed = self.state.version

    def _commanded(self, entries: list[Incident], now_s: float) -> None:
        """Keep in the log what was asked for, and what came of it."""
        new = [one for entry in entries for one in self.know.incidents.commanded(entry)]
        if self._incident_file is not None:
            self._incident_file.append(new)
        for entry in new:
            self._log.say(entry.finding.headline)
        if new:
            self.state.version += 1
            self.state.head_changed = self.state.version

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Diagnose, log what opened or closed, and record. Never raises."""
        try:
            self._tick(now_s)
        except Exception:  # noqa: BLE001 - a bug here must not end the hub either
            self._log.once("bug in tick", traceback.format_exc())

    def _tick(self, now_s: float) -> None:
        state = self.state
        state.launched = self.launcher_lives()
        state.tick(now_s)
        state.urgent = state.unusual = False
        before = [(f.headline, f.severity, f.evidence, f.victims) for f in self.know.findings]
        try:
            findings = diagnose(state, now_s)
        except Exception:  # noqa: BLE001 - a wrong diagnosis must not end the hub
            findings = self.know.findings
            self._log.once("bug in diagnosis", traceback.format_exc())
        log = self.know.incidents
        findings = standing.after_absence(state, findings, log, now_s)
        findings = standing.while_silent(state, findings, log, now_s)
        findings = standing.while_ending(state, findings, log, now_s)
        findings = standing.as_old_as_before(state, findings, log, now_s)
        told = standing.after_end(state, findings, log, now_s)
        told = told_to_end(state, told)
        self.know.findings = gone.afterwards(state, told, now_s)
        self.know.diagnosed_s = now_s
        log.saved = last_checkpoint(state)
        # For the log alone: a stall is no finding and no verdict.
        known = self.know.incidents.open_of("stalled", state.attempt)
        traces = stalled(state, findings, known, now_s)
        new = self.know.incidents.observe([*findings, *traces], state.attempt, now_s)
        for end in sorted(state.late_ends, key=lambda end: end.at_s):
            new += self.know.incidents.past(late_finding(end, now_s), end.attempt, now_s)
        state.late_ends.clear()
        compared = parity_entry(state, now_s)
        if compared is not None:
            new += self.know.incidents.once(*compared, now_s)
        if state.blind[-1:] != self._blind:
            self._blind = state.blind[-1:]
            if ended_s(state, self._word) is None:  # of a run that is over there is nothing to see
                new += self._blind_time(LOST_S)  # less is a busy machine
        if self._incident_file is not None:
            self._incident_file.append(new)  # also retries what failed before
        for entry in new:
            self._log.say(f"{entry.event}: {entry.finding.headline}")
        after = [(f.headline, f.severity, f.evidence, f.victims) for f in self.know.findings]
        if self.on_world_size is not None and state.world_size:
            self.on_world_size(state.world_size)
        self._notice(now_s, bool(new) or before != after)
        if self.on_end is not None:
            self.on_end(ended_s(state, self._word), exit_code(state))
        self._record(now_s)
        self._inquire(now_s)
        self._order(now_s)

    def restarted(self) -> None:
        """Log in which time there was no hub: this one has begun where another one was killed."""
        self._blind = self.state.blind[-1:]
        new = self._blind_time(0.0)
        if self._incident_file is not None:
            self._incident_file.append(new)

    def _blind_time(self, least_s: float) -> list[Incident]:
        """Entries for the newest time in which no hub looked, if it is that long and they are not
        in the log."""
        found = []
        for from_s, until_s in self._blind:
            if until_s - from_s >= least_s:
                found = self.know.incidents.kept(blind_time(from_s, until_s, self.state.attempt))
        return found

    def _inquire(self, now_s: float) -> None:
        """Ask agents and sentinels for what the diagnosis would like to know."""
        for rank, what in self.state.inquiries.due(now_s):
            own = tuple(one for one in what if one in inquiries.OF_AGENT)
            speaker = self._speakers.get(rank)
            if own and speaker is not None:
                self.outbox.append((speaker, codec.encode(m.Inquire(rank, own))))
            others = tuple(one for one in what if one in inquiries.OF_SENTINEL)
            sentinel = self.state.nodes.by_host.get(self.state.host(rank))
            outside = None if sentinel is None else self._sentinels.get(sentinel.node)
            if others and outside is not None:
                self.outbox.append((outside, codec.encode(m.Inquire(rank, others))))

    def _notice(self, now_s: float, findings_changed: bool) -> None:
        """Give a new version to what changed by the mere passing of time."""
        state = self.state
        links = liveness.links(state, now_s)
        if len(links) == len(self._links):
            moved = np.flatnonzero(links != self._links)
            if moved.size:
                state.version += 1
                state.ranks.changed[moved] = state.version
        self._links = links
        word = run_state(state, now_s)
        note = "; ".join(filter(None, (self._trouble(), self._incident_trouble())))
        if findings_changed or word != self._word or note != self.know.note:
            state.version += 1
            state.head_changed = state.version
        self._word = word
        self.know.note = note

    def _trouble(self) -> str:
        return self._recorder.trouble if self._recorder is not None else ""

    def _incident_trouble(self) -> str:
        return self._incident_file.trouble if self._incident_file is not None else ""

    def _record(self, now_s: float) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        before = recorder.trouble
        # A tick in which nothing happened tells nothing but the time: once a second is enough,
        # and well within the gap that means "the hub was away".
        if self.state.version != self._seen_version or now_s - self._recorded_tick_s >= 1.0:
            recorder.tick(now_s)
            self._seen_version = self.state.version
            self._recorded_tick_s = now_s
        if recorder.wants_snapshot(now_s):
            self.snapshot(now_s)
        if recorder.trouble and recorder.trouble != before:
            self._log.once(recorder.trouble, recorder.trouble)

    def snapshot(self, now_s: float) -> None:
        """Write the whole state into the recording."""
        if self._recorder is not None:
            self._recorder.snapshot(now_s, snapshot.dump(self.state))

    def flush(self) -> None:
        """Hand the recording to the operating system."""
        if self._recorder is not None:
            self._recorder.flush()

    def close(self, now_s: float) -> None:
        """The last words into the recording."""
        if self._recorder is not None:
            self._recorder.tick(now_s)
            self.snapshot(now_s)
            self._recorder.close()
        if self._incident_file is not None:
            self._incident_file.flush()

    # --- for whoever decides when to end ------------------------------------------------------

    def ranks_ended_s(self) -> float | None:
        """When the last rank ended; None also while a launcher may start them again."""
        return None if self.state.launched else last_rank_ended_s(self.state)

    def over_s(self) -> float | None:
        """Since when nothing can come any more: the launcher's command has ended, and whoever
        outlived it."""
        end_s = ended_s(self.state, self._word)
        if self.state.run_end_s is None or end_s is None:
            return None
        return max(self.state.run_end_s, end_s)

    def heard_s(self) -> float | None:
        """When a rank or a sentinel was heard last."""
        times = [sentinel.heard_s for sentinel in self.state.nodes.sentinels.values()]
        times.append(float(np.nanmax(self.state.ranks.heard_s, initial=0.0)))
        return max(times, default=None)
