"""A run as its hub sees it, played by hand: ranks, sentinels and the time, and no socket.

world = World(ranks=4)
world.step()                  # every rank completes a step
world.kill(2)                 # SIGKILL, as its sentinel reports it
world.advance(1.0)            # time goes on; who lives goes on speaking
assert world.finding("rank-dead").ranks == [2]
"""

from collections.abc import Iterable
from typing import Any, Self

import msgspec

from rankscope.hub.core import Core
from rankscope.hub.incidents import IncidentFile, Incidents
from rankscope.hub.recording import Recorder
from rankscope.hub.state import RunState
from rankscope.protocol import codec, limits, shapes
from rankscope.protocol import messages as m
from support.hello import hello_fields

RUN = "run-1"
START_S = 1_000_000.0
BEAT_S = 0.5
REPORT_S = 1.0


class SimRank:
    """One rank: what it would say if asked now."""

    def __init__(self, rank: int, host: str, local_rank: int) -> None:
        self.rank = rank
        self.host = host
        self.local_rank = local_rank
        self.pid = 1000 + rank
        self.seq = 0
        self.step = 0
        self.phase = m.Phase.STARTING
        self.phase_s = START_S
        self.activity = 0
        self.state = "alive"
        self.state_s = START_S
        self.cpu_s = 1.0
        self.ready_since_s: float | None = None
        self.queued_s: float | None = None
        """Since when its main thread runs or is ready to."""
        self.mute = False
        """Its messages do not reach the hub."""
        self.over = False
        self.gone = False
        """Nobody tells anything of it any more."""
        self.clock_s = -1000.0 * (rank + 1)
        """Its monotonic clock minus the hub's."""


class World:
    """Ranks on nodes (``per_node`` each), one sentinel a node, a hub without sockets."""

    def __init__(
        self,
        ranks: int = 4,
        per_node: int | None = None,
        *,
        attached: Iterable[int] | None = None,
        sentinels: bool = True,
        hello: bool = True,
        recorder: Recorder | None = None,
        incident_file: IncidentFile | None = None,
    ) -> None:
        self.now_s = START_S
        self.size = ranks
        self.attempt = 0
        self.counts: dict[str, int] = {}
        """By host what its launcher calls the attempt, where that is another number."""
        per_node = per_node or ranks
        self.ranks = {
            rank: SimRank(rank, f"node-{rank // per_node}", rank % per_node)
            for rank in (range(ranks) if attached is None else attached)
        }
        self.hosts = sorted({rank.host for rank in self.ranks.values()})
        self.node_seq = dict.fromkeys(self.hosts, 0)
        self.silent_hosts: set[str] = set() if sentinels else set(self.hosts)
        self.core = Core(
            RunState(RUN, version=int(START_S * 1e6)),
            Incidents(),
            now_s=self.now_s,
            recorder=recorder,
            incident_file=incident_file,
        )
        if hello:
            for host in self.hosts:
                self.node_hello(host)
            for rank in self.ranks:
                self.hello(rank)

    @property
    def state(self) -> RunState:
        return self.core.state

    def count(self, host: str) -> int:
        """The attempt as the launcher on ``host`` counts it."""
        return self.counts.get(host, self.attempt)

    # --- the wire -----------------------------------------------------------------------------

    def send(self, message: m.Message, peer: str = "a") -> None:
        self.core.receive(peer.encode(), "agent", codec.encode(message), self.now_s)

    def from_rank(self, rank: int, message: type[m.FromRank], /, **fields: Any) -> None:
        """A message of ``rank`` with its next number; lost when the rank is mute."""
        sim = self.ranks[rank]
        sim.seq += 1
        if not sim.mute:
            built = message(
                attempt=self.count(sim.host),
                rank=rank,
                seq=sim.seq,
                t_s=self.now_s + sim.clock_s,
                **fields,
            )
            self.send(built, f"rank {rank}")

    def from_node(self, host: str, message: type[m.FromNode], /, **fields: Any) -> None:
        if host in self.silent_hosts:
            return
        self.node_seq[host] += 1
        built = message(node=f"{host}:1", seq=self.node_seq[host], t_s=self.now_s - 50.0, **fields)
        self.send(built, host)

    # --- what ranks and sentinels say ---------------------------------------------------------

    def hello(self, rank: int, **changes: Any) -> None:
        sim = self.ranks[rank]
        fields = hello_fields(RUN, self.size, sim.local_rank, sim.host, sim.pid)
        fields |= {"name": "gpt", "boundary": True, "facts": {"torch": "2.13.0"}}
        self.from_rank(rank, m.Hello, **(fields | changes))

    def node_hello(self, host: str) -> None:
        self.from_node(
            host,
            m.NodeHello,
            run=RUN,
            host=host,
            pid=7,
            gpu_note="none: no NVIDIA driver on this machine",
            stack_note="",
            facts={},
        )

    def beat(self, rank: int, **changes: Any) -> None:
        sim = self.ranks[rank]
        fields = {
            "step": sim.step,
            "microbatch": 1,
            "phase": sim.phase,
            "phase_t_s": sim.phase_s + sim.clock_s,
            "activity": sim.activity,
        }
        self.from_rank(rank, m.Beat, **(fields | changes))

    def report(self, host: str) -> None:
        self.from_node(
            host,
            m.NodeReport,
            processes=tuple(
                m.ProcessSample(
                    self.count(host),
                    sim.rank,
                    sim.pid,
                    sim.state,
                    self.now_s - sim.state_s,
                    sim.cpu_s,
                    1 << 20,
                    0.0 if sim.ready_since_s is None else self.now_s - sim.ready_since_s,
                    None if sim.queued_s is None else int(1e3 * sim.queued_s),
                )
                for sim in self.ranks.values()
                if sim.host == host and not sim.gone
            ),
        )

    # --- what happens -------------------------------------------------------------------------

    def phase(self, rank: int, phase: m.Phase) -> Self:
        """The rank's training thread goes over to ``phase``."""
        sim = self.ranks[rank]
        sim.phase, sim.phase_s = phase, self.now_s
        sim.activity += 1
        self.beat(rank)
        return self

    def step(self, *ranks: int, step_s: float = 0.2, **values: Any) -> Self:
        """Time goes on by one step, which these ranks (all that live) complete."""
        self.now_s += step_s
        for rank in ranks or [r for r, sim in self.ranks.items() if not sim.over]:
            sim = self.ranks[rank]
            sim.step += 1
            sim.activity += 4
            sim.phase, sim.phase_s = m.Phase.BACKWARD, self.now_s
            sim.cpu_s += step_s
            record = m.StepRecord(
                step=sim.step,
                t_s=self.now_s + sim.clock_s,
                step_s=step_s,
                data_s=0.1 * step_s,
                forward_s=0.3 * step_s,
                backward_s=0.5 * step_s,
                optimizer_s=0.1 * step_s,
                other_s=0.0,
                microbatches=1,
                **({"loss": 2.0, "tokens": 100, "grad_norm": 1.0} | values),
            )
            self.beat(rank, steps=(record,))
        return self

    def ended(
        self,
        rank: int,
        *,
        signal: int | None = None,
        code: int | None = None,
        oom: bool = False,
        ago_s: float = 0.0,
        **changes: Any,
    ) -> Self:
        sim = self.ranks[rank]
        sim.over, sim.state = True, "ended"
        fields = {
            "attempt": self.count(sim.host),
            "rank": rank,
            "pid": sim.pid,
            "exit_code": code,
            "signal": signal,
            "oom_killed": oom,
            "event_t_s": self.now_s - ago_s - 50.0,
            "how": "pidfd",
        }
        self.from_node(sim.host, m.ProcessEnded, **(fields | changes))
        return self

    def kill(self, rank: int, signal: int = 9, **changes: Any) -> Self:
        return self.ended(rank, signal=signal, **changes)

    def exits(self, rank: int, code: int, **changes: Any) -> Self:
        return self.ended(rank, code=code, **changes)

    def raises(
        self,
        rank: int,
        type_: str = "ValueError",
        *,
        from_peer: bool = False,
        source: str = "train.py:10 in main",
        message: str = "no such token",
        ago_s: float = 0.0,
    ) -> Self:
        """The rank raises: word of it, and the goodbye that follows."""
        sim = self.ranks[rank]
        self.from_rank(
            rank,
            m.Raised,
            type=type_,
            message=message,
            traceback=f"Traceback\n  {source}\n{type_}: {message}",
            source=source,
            step=sim.step,
            phase=sim.phase,
            from_peer=from_peer,
            event_t_s=self.now_s - ago_s + sim.clock_s,
        )
        return self.goodbye(rank, "exception")

    def goodbye(self, rank: int, reason: str = "finished") -> Self:
        self.from_rank(rank, m.Goodbye, reason=reason, step=self.ranks[rank].step)
        self.ranks[rank].over = True
        return self

    def finish(self, rank: int) -> Self:
        """The rank ends in order."""
        return self.goodbye(rank).exits(rank, 0)

    def stop(self, rank: int) -> Self:
        """SIGSTOP: it says nothing more, and its sentinel sees why."""
        return self._process(rank, "stopped", mute=True)

    def cont(self, rank: int) -> Self:
        return self._process(rank, "alive", mute=False)

    def _process(self, rank: int, state: str, *, mute: bool) -> Self:
        sim = self.ranks[rank]
        sim.state, sim.state_s, sim.mute = state, self.now_s, mute
        self.report(sim.host)
        return self

    def new_attempt(self) -> Self:
        """The launcher starts all ranks again."""
        self.attempt += 1
        return self.new_lives(*self.ranks)

    def new_lives(self, *ranks: int) -> Self:
        """New processes have these ranks, and say hello in this order."""
        for rank in ranks:
            sim = self.ranks[rank]
            fresh = SimRank(sim.rank, sim.host, sim.local_rank)
            fresh.pid = sim.pid + 100
            fresh.clock_s = sim.clock_s
            fresh.phase_s = fresh.state_s = self.now_s
            self.ranks[sim.rank] = fresh
            self.hello(sim.rank)
        return self

    def run_end(
        self,
        code: int = 0,
        signal: int | None = None,
        asked: int | None = None,
        *,
        leaves: bool = False,
    ) -> None:
        """The launcher's command has ended, and its ranks with it, though nobody may have told of
        that; unless it ``leaves`` them."""
        for sim in self.ranks.values():
            sim.gone |= not leaves
        self.send(m.RunEnd(code, signal, asked), "launcher")

    # --- time and what comes of it ------------------------------------------------------------

    def advance(self, seconds: float, *, moving: bool = False) -> Self:
        """Time goes on: living ranks beat, sentinels report, the hub ticks four times a second.

        With ``moving`` the ranks change phase with every beat.
        """
        end_s = self.now_s + seconds
        beat_s, report_s = self.now_s, self.now_s
        while self.now_s < end_s - 1e-9:
            self.now_s = min(end_s, self.now_s + 0.25)
            if self.now_s - beat_s >= BEAT_S:
                beat_s = self.now_s
                for rank, sim in self.ranks.items():
                    if sim.over or sim.gone or sim.state == "stopped":
                        continue
                    if moving:
                        self.phase(rank, m.Phase.FORWARD)
                    else:
                        self.beat(rank)
            if self.now_s - report_s >= REPORT_S:
                report_s = self.now_s
                for host in self.hosts:
                    self.report(host)
            self.core.tick(self.now_s)
        return self

    def tick(self) -> None:
        self.core.tick(self.now_s)

    def findings(self) -> list[shapes.Finding]:
        self.tick()
        return self.core.know.findings

    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings()]

    def finding(self, kind: str) -> shapes.Finding:
        """The only finding there is, which must be of ``kind``."""
        findings = self.findings()
        assert [finding.kind for finding in findings] == [kind], findings
        return findings[0]

    def ask(self, view: str, since: int = 0, **args: int | str) -> m.ViewReply:
        """The hub's reply to a viewer, now."""
        self.core.outbox.clear()
        request = m.ViewRequest(1, view, since, args)
        self.core.receive(b"viewer", "viewer", codec.encode(request), self.now_s)
        reply = codec.decode(self.core.outbox.pop()[1], limits.MAX_REPLY_FRAME_BYTES)
        assert isinstance(reply, m.ViewReply)
        return reply

    def view(self, view: str, **args: int | str) -> Any:
        reply = self.ask(view, 0, **args)
        assert not reply.error, reply.error
        return msgspec.msgpack.decode(reply.body, type=shapes.VIEWS[view])

    def status(self) -> shapes.Status:
        self.tick()
        status = self.view("status")
        assert isinstance(status, shapes.Status)
        return status

    def overview(self) -> shapes.Overview:
        self.tick()
        overview = self.view("overview")
        assert isinstance(overview, shapes.Overview)
        return overview

    def log(self) -> list[shapes.Incident]:
        """The incident log, but for what the hub says in it of itself."""
        entries: list[shapes.Incident] = self.view("incidents").incidents
        return [entry for entry in entries if entry.finding.kind != "hub-away"]

    def replies(self) -> list[tuple[bytes, m.Message]]:
        """What the hub has to send, taken off."""
        out = [(peer, codec.decode(frame)) for peer, frame in self.core.outbox]
        self.core.outbox.clear()
        return out
