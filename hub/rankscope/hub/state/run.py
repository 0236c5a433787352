"""The state of a run: what messages do to it, in one place, and nothing else."""

import math
from collections.abc import Callable
from typing import Any

import msgspec

from rankscope.hub.inquiries import Inquiries
from rankscope.hub.state import silence
from rankscope.hub.state.clocks import Clocks
from rankscope.hub.state.columns import MAX_SIZE
from rankscope.hub.state.history import History
from rankscope.hub.state.nodes import MAX_NODES, Nodes, Sentinel
from rankscope.hub.state.plausible import lie_of_node, lie_of_rank
from rankscope.hub.state.ranks import ALIVE, ENDED, EXCEPTION, FINISHED, NO_GOODBYE, RankColumns
from rankscope.hub.state.sequences import AGAIN, FRESH, Sequences
from rankscope.hub.state.words import RankException, Rival, Words
from rankscope.protocol import limits
from rankscope.protocol import messages as m

AWAY_S = 2.0
"""Ticks further apart than this mean that the hub itself was away: ages start anew."""


THERE_S = 2.0
"""An agent speaks every 0.5 s: one that was heard within this time has not ended."""


class LateEnd(msgspec.Struct, frozen=True):
    """A process of an earlier attempt whose end was reported after the next one began."""

    attempt: int
    rank: int
    host: str
    at_s: float
    exit_code: int | None
    signal: int | None
    oom_killed: bool


class BadMessage(ValueError):
    """A well-formed message that cannot be true, in words; it changed nothing."""


class RunState:
    """Everything the hub knows of one run. Times are on the hub's clock, ``version`` counts
    changes."""

    def __init__(self, run: str, name: str = "", version: int = 0) -> None:
        self.run = run
        self.name = name
        self.version = version
        self.head_changed = version
        """The version in which something that is not a rank's row changed last."""
        self.attempt = 0
        self.world_size = 0
        self.began_s: float | None = None
        """When the run directory was made: the zero of the time up. None when not known."""
        self.first_heard_s: float | None = None
        self.run_end: m.RunEnd | None = None
        self.run_end_s: float | None = None
        self.bad_frames = 0
        self.unknown_kinds = 0
        self.restarts = 0
        self.last_tick_s: float | None = None
        self.away_from_s = -math.inf
        self.away_until_s = -math.inf
        """When the hub itself was away last: no silence is counted for that time."""
        self.urgent = False
        """Something happened that is worth a diagnosis at once. Whoever diagnoses resets it."""

        self.ranks = RankColumns()
        self.sequences = Sequences()
        self.clocks = Clocks()
        self.node_sequences = Sequences()
        self.node_clocks = Clocks()
        self.nodes = Nodes()
        self.words = Words()
        self.history = History()
        self.late_ends: list[LateEnd] = []
        self.inquiries = Inquiries()
        """What the diagnosis would like to know; not part of what is saved."""

        self._rank_handlers: dict[type[m.Message], Callable[[Any, float], None]] = {
            m.Beat: self._beat,
            m.Hello: self._hello,
            m.Groups: self._groups,
            m.Raised: self._raised,
            m.ProbeFault: self._probe_fault,
            m.Goodbye: self._goodbye,
        }
        self._node_handlers: dict[type[m.Message], Callable[[Any, Sentinel, float], None]] = {
            m.NodeHello: self._node_hello,
            m.NodeReport: self._node_report,
            m.ProcessEnded: self._process_ended,
        }

    # --- what changes it ----------------------------------------------------------------------

    def apply(self, message: m.Message, received_s: float) -> bool:
        """Take in one message of an agent, a sentinel or the launcher.

        False when it was known already or is of an attempt that is over: nothing has changed then.
        Raises :class:`BadMessage` when it cannot be true; nothing has changed then, either.
        """
        handler = self._rank_handlers.get(type(message))
        if handler is not None:
            assert isinstance(message, m.FromRank)
            return self._from_rank(message, handler, received_s)
        if isinstance(message, m.FromNode):
            return self._from_node(message, received_s)
        if not isinstance(message, m.RunEnd) or self.run_end is not None:
            return False
        self.run_end = message
        self.run_end_s = received_s
        self._head()
        return True

    def tick(self, now_s: float) -> None:
        """Time went on. Called whenever the hub diagnoses."""
        if self.last_tick_s is not None and now_s - self.last_tick_s > AWAY_S:
            self.hub_was_away(now_s)
        self.last_tick_s = now_s

    def hub_was_away(self, until_s: float) -> None:
        """The hub was stopped, or is another one, since the last tick: silence counts anew."""
        if self.last_tick_s is None:
            return
        self.away_from_s = self.last_tick_s
        self.away_until_s = until_s
        silence.hub_was_away(self.ranks, self.nodes, self.away_from_s, until_s)
        self.last_tick_s = until_s

    def _head(self) -> None:
        self.version += 1
        self.head_changed = self.version
        self.urgent = True

    def knows_rank(self, rank: int) -> bool:
        return rank < self.ranks.size and bool(self.ranks.known[rank])

    def size(self) -> int:
        """How many ranks there are rows for: all of the world, as far as the columns reach."""
        if self.world_size:
            return min(self.world_size, MAX_SIZE)
        return int(self.ranks.heard().nonzero()[0].max(initial=-1)) + 1

    # --- ranks --------------------------------------------------------------------------------

    def _from_rank(
        self, message: m.FromRank, handler: Callable[[Any, float], None], received_s: float
    ) -> bool:
        rank = message.rank
        attempt = message.attempt
        now = attempt == self.attempt
        last_seq = self.sequences.cells.last[rank] if now and rank < self.sequences.size else 0
        lie = lie_of_rank(message, self.run, self.world_size if now else 0, last_seq)
        if lie:
            raise BadMessage(lie)
        if not now:
            if attempt < self.attempt:
                return False
            self._begin_attempt(attempt)
        ranks = self.ranks
        if rank >= ranks.size:
            self._reserve(max(rank + 1, self.world_size))
        if type(message) is m.Hello:
            if self._is_rival(message, received_s):
                return self._rival(message, received_s)
            self._renew(message)
        arrived = self.sequences.arrived(rank, message.seq)
        if arrived == AGAIN:
            return False
        self.clocks.heard(rank, message.t_s, received_s)
        if arrived == FRESH:
            if self.first_heard_s is None:
                self.first_heard_s = received_s
                self.head_changed = self.version + 1
            ranks.cells.heard_s[rank] = received_s
            handler(message, received_s)
        elif type(message) is m.Beat:
            # It comes late: its records are still true, the rest is not.
            self._records(message, received_s)
        self.version += 1
        self.ranks.cells.changed[rank] = self.version
        return True

    def _reserve(self, size: int) -> None:
        self.ranks.reserve(size)
        self.sequences.reserve(size)
        self.clocks.reserve(size)
        # Rows that nobody was told of come into being.
        self.ranks.changed[:] = self.version + 1

    def _begin_attempt(self, attempt: int) -> None:
        self.attempt = attempt
        self.ranks.clear()
        self.sequences.restart_all()
        self.clocks.clear()
        self.words.forget_all()
        self._head()
        self.ranks.changed[:] = self.version

    def _renew(self, hello: m.Hello) -> None:
        """A new life of the same rank in the same attempt: another process, or attached again."""
        rank = hello.rank
        ranks = self.ranks
        if not ranks.known[rank]:
            return
        other = not self.is_process(hello)
        if other or (hello.seq == 1 and ranks.goodbye[rank]):
            ranks.clear(rank)
            self.sequences.restart(rank)
            # What another process said before it was its turn is not missed.
            self.sequences.cells.last[rank] = max(0, hello.seq - 1)
            self.clocks.clear(rank)
            self.words.forget(rank)
            self._head()

    def is_process(self, hello: m.Hello) -> bool:
        """Whether the rank belongs to the process that says hello."""
        rank = hello.rank
        host = self.host(rank)  # none when there were too many to remember
        return self.ranks.pid.item(rank) == hello.pid and host in ("", hello.host)

    def is_there(self, rank: int, now_s: float) -> bool:
        """Whether the rank's process has not ended and was heard of lately."""
        ranks = self.ranks
        if not self.knows_rank(rank) or ranks.goodbye[rank] or ranks.process[rank] == ENDED:
            return False
        heard_s, excused_s = ranks.heard_s.item(rank), ranks.excused_s.item(rank)
        return now_s - (excused_s if excused_s > heard_s else heard_s) <= THERE_S

    def _is_rival(self, hello: m.Hello, now_s: float) -> bool:
        return self.is_there(hello.rank, now_s) and not self.is_process(hello)

    def _rival(self, hello: m.Hello, now_s: float) -> bool:
        known = self.words.rivals.get(hello.rank)
        if known is not None and (known.pid, known.host) == (hello.pid, hello.host):
            return False
        self.words.rivals[hello.rank] = Rival(hello.pid, hello.host, now_s)
        self._head()
        return True

    def _hello(self, hello: m.Hello, received_s: float) -> None:
        rank = hello.rank
        if hello.world_size != self.world_size:
            self.world_size = hello.world_size
            self._reserve(hello.world_size)
        ranks = self.ranks
        if not ranks.known[rank]:
            ranks.known[rank] = True
            ranks.start_step[rank] = hello.start_step
            if ranks.step.item(rank) < hello.start_step:
                ranks.step[rank] = hello.start_step
                ranks.recorded[rank] = hello.start_step
        ranks.host[rank] = self.words.hosts.index(hello.host)
        ranks.identity[rank] = self.words.identity(hello)
        ranks.pid[rank] = hello.pid
        ranks.local_rank[rank] = hello.local_rank
        ranks.boundary[rank] = hello.boundary
        if math.isnan(ranks.phase_since_s.item(rank)):
            ranks.phase_since_s[rank] = received_s
        if math.isnan(ranks.moved_s.item(rank)):
            ranks.moved_s[rank] = received_s
        if hello.name and not self.name:
            self.name = hello.name
        self.head_changed = self.version + 1

    def _beat(self, beat: m.Beat, received_s: float) -> None:
        if beat.hub_offset_s is not None:
            self.clocks.estimated(beat.rank, beat.hub_offset_s, beat.hub_offset_error_s)
        ranks = self.ranks
        ranks.beat(beat, self.clocks, received_s)
        if ranks.cells.goodbye[beat.rank]:
            ranks.goodbye[beat.rank] = NO_GOODBYE  # it was attached again
        if beat.memory is not None:
            self.words.memory[beat.rank] = beat.memory
        if beat.collectives:
            self.words.set_collectives(beat.rank, beat.collectives)
        if beat.steps or beat.late:
            self._records(beat, received_s)

    def _records(self, beat: m.Beat, received_s: float) -> None:
        rank = beat.rank
        for record in beat.steps:
            if self.ranks.record(rank, record):
                done_s = self.clocks.place(rank, record.t_s, received_s)
                self.history.record(beat.attempt, record, done_s)
        for late in beat.late:
            self.ranks.values(rank, late.step, late.loss, late.grad_norm)
            sharded = bool(self.ranks.grad_sharded[rank])
            self.history.late(beat.attempt, late.step, (late.loss, late.grad_norm), sharded)

    def _groups(self, groups: m.Groups, received_s: float) -> None:
        self.words.set_groups(groups.rank, groups.groups)

    def _raised(self, raised: m.Raised, received_s: float) -> None:
        self.words.exceptions.setdefault(
            raised.rank,
            RankException(
                at_s=self.clocks.place(raised.rank, raised.event_t_s, received_s),
                type=raised.type,
                message=raised.message,
                traceback=raised.traceback,
                source=raised.source,
                step=raised.step,
                phase=int(raised.phase),
                from_peer=raised.from_peer,
            ),
        )
        self._head()

    def _probe_fault(self, fault: m.ProbeFault, received_s: float) -> None:
        self.words.set_probe_fault(fault.rank, fault)

    def _goodbye(self, goodbye: m.Goodbye, received_s: float) -> None:
        rank = goodbye.rank
        ranks = self.ranks
        ranks.goodbye[rank] = EXCEPTION if goodbye.reason == "exception" else FINISHED
        ranks.goodbye_s[rank] = self.clocks.place(rank, goodbye.t_s, received_s)
        if goodbye.step > ranks.step.item(rank):
            ranks.step[rank] = goodbye.step
        self._head()

    # --- nodes --------------------------------------------------------------------------------

    def _from_node(self, message: m.FromNode, received_s: float) -> bool:
        known = self.nodes.sentinels.get(message.node)
        last_seq = self.node_sequences.cells.last[known.index] if known else 0
        lie = lie_of_node(message, self.run, last_seq)
        if lie:
            raise BadMessage(lie)
        sentinel = known or self._new_sentinel(message.node)
        index = sentinel.index
        arrived = self.node_sequences.arrived(index, message.seq)
        if arrived == AGAIN:
            return False
        self.node_clocks.heard(index, message.t_s, received_s)
        if arrived == FRESH or isinstance(message, m.ProcessEnded):
            self._node_handlers[type(message)](message, sentinel, received_s)
        before = self.nodes.by_host.get(sentinel.host)
        if before is not None:
            host = self.words.hosts.index(sentinel.host)
            silence.node_is_back(self.ranks, host, before, received_s)
        self.nodes.heard(sentinel, received_s)
        self.version += 1
        self.head_changed = self.version
        return True

    def _new_sentinel(self, node: str) -> Sentinel:
        sentinel = self.nodes.get(node)
        if sentinel is None:
            raise BadMessage(f"sentinel {node}: there are {MAX_NODES} already")
        self.node_sequences.reserve(sentinel.index + 1)
        self.node_clocks.reserve(sentinel.index + 1)
        self.node_sequences.restart(sentinel.index)
        self.node_clocks.clear(sentinel.index)
        return sentinel

    def _node_hello(self, hello: m.NodeHello, sentinel: Sentinel, received_s: float) -> None:
        self.nodes.hello(sentinel, hello)

    def _node_report(self, report: m.NodeReport, sentinel: Sentinel, received_s: float) -> None:
        self.nodes.report(sentinel, report)
        at_s = self.node_clocks.place(sentinel.index, report.t_s, received_s)
        ranks = self.ranks
        for sample in report.processes:
            rank = sample.rank
            if sample.attempt != self.attempt or rank >= ranks.size:
                continue
            if not math.isnan(ranks.ended_s.item(rank)) or sample.state == "ended":
                continue  # process_ended says it with how
            pid = ranks.pid.item(rank)
            if 0 <= pid != sample.pid:
                continue  # an earlier process of that rank
            if ranks.sampled(sample, at_s, received_s):
                self.urgent = True
                self.version += 1
                ranks.changed[rank] = self.version

    def _process_ended(self, end: m.ProcessEnded, sentinel: Sentinel, received_s: float) -> None:
        at_s = self.node_clocks.place(sentinel.index, end.event_t_s, received_s)
        rank = end.rank
        if end.attempt < self.attempt:
            self._late_end(end, sentinel, at_s)
            return
        if end.attempt > self.attempt:
            self._begin_attempt(end.attempt)
        if rank >= self.ranks.size:
            self._reserve(max(rank + 1, self.world_size))
        pid = self.ranks.pid.item(rank)
        if 0 <= pid != end.pid and self.ranks.known[rank]:
            return  # an earlier process of that rank
        self.ranks.ended(end, at_s, received_s)
        self.words.how_ended.setdefault(rank, f"the sentinel on {sentinel.host}")
        self._head()
        self.ranks.changed[rank] = self.version

    def _late_end(self, end: m.ProcessEnded, sentinel: Sentinel, at_s: float) -> None:
        # SIGTERM and SIGINT are how a launcher ends an attempt: no news.
        bad = end.signal not in (None, 0, 2, 15) or end.exit_code not in (0, None)
        known = any(e.attempt == end.attempt and e.rank == end.rank for e in self.late_ends)
        if bad and not known and len(self.late_ends) < 256:
            self.late_ends.append(
                LateEnd(
                    end.attempt,
                    end.rank,
                    sentinel.host,
                    at_s,
                    end.exit_code,
                    end.signal,
                    end.oom_killed,
                )
            )
            self._head()

    # --- answers ------------------------------------------------------------------------------

    def alive(self, rank: int) -> bool:
        """Whether the sentinel says that the rank's process runs."""
        return int(self.ranks.process[rank]) == ALIVE

    def host(self, rank: int) -> str:
        index = self.ranks.host.item(rank) if rank < self.ranks.size else -1
        return self.words.hosts.values[index] if 0 <= index < len(self.words.hosts.values) else ""

    def dropped(self) -> int:
        """Records agents threw away, and messages that were sent and never arrived."""
        counts = (self.ranks.dropped, self.sequences.missed, self.node_sequences.missed)
        # Not numpy's sum, which wraps around: a rank may claim any count.
        return min(limits.MAX_COUNT, sum(sum(count.tolist()) for count in counts))
