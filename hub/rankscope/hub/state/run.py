"""The state of a run: its parts, and which function takes in which message."""

import math
from collections.abc import Callable
from typing import Any

from rankscope.hub.inquiries import Inquiries
from rankscope.hub.state import fromnodes, fromranks, numerics, silence
from rankscope.hub.state.clocks import Clocks
from rankscope.hub.state.columns import MAX_SIZE
from rankscope.hub.state.controls import Controls
from rankscope.hub.state.gpus import GpuHistory
from rankscope.hub.state.history import History
from rankscope.hub.state.lateness import Lateness
from rankscope.hub.state.lives import Lives
from rankscope.hub.state.memory import MemoryHistory
from rankscope.hub.state.nodes import LateEnd, Nodes, Sentinel
from rankscope.hub.state.operations import Operations
from rankscope.hub.state.paces import Paces
from rankscope.hub.state.parity import Parity
from rankscope.hub.state.parts import PARTS, Part
from rankscope.hub.state.progress import Progress
from rankscope.hub.state.ranks import ALIVE, ENDED, RankColumns
from rankscope.hub.state.saves import Saves
from rankscope.hub.state.sequences import Sequences
from rankscope.hub.state.setup import Setup
from rankscope.hub.state.stacks import Stacks
from rankscope.hub.state.words import Words
from rankscope.protocol import limits
from rankscope.protocol import messages as m

AWAY_S = 2.5
"""Ticks further apart than this mean that the hub itself was away: ages start anew."""


MAX_BLIND = 1024
"""So many times at which the hub was away are known."""

THERE_S = 2.0
"""An agent speaks every 0.5 s: one that was heard within this time has not ended."""


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
        self.unwatched = False
        """No hub hears the ranks any more, though they had not ended: this is what one left. Not
        saved."""
        self.launched = False
        """Its launcher lives: when all ranks have ended it may start them again. Not saved."""
        self.blind: list[tuple[float, float]] = []
        """All such times, from when to when, the newest last."""
        self.urgent = False
        """Something happened that is worth a diagnosis at once. Whoever diagnoses resets it."""
        self.unusual = False
        """Something came of which a finding may come, so that it is to be looked at with the next
        beat or two. Whoever diagnoses resets it."""

        self.ranks = RankColumns()
        self.sequences = Sequences()
        self.clocks = Clocks()
        self.node_sequences = Sequences()
        self.node_clocks = Clocks()
        self.nodes = Nodes()
        self.words = Words()
        self.history = History()
        self.late_ends: list[LateEnd] = []
        self.progress = Progress()
        self.stacks = Stacks()
        self.operations = Operations()
        self.setup = Setup()
        self.memory = MemoryHistory()
        self.paces = Paces()
        self.lateness = Lateness()
        self.gpus = GpuHistory()
        self.numerics = numerics.Numerics()
        self.saves = Saves()
        self.parity = Parity()
        self.controls = Controls()
        self.lives = Lives()
        self.inquiries = Inquiries()
        """What the diagnosis would like to know; not saved."""

    def parts(self) -> list[Part]:
        """The parts of ``PARTS``."""
        return [getattr(self, name) for name in PARTS]

    # --- what changes it ----------------------------------------------------------------------

    def apply(self, message: m.Message, received_s: float) -> bool:
        """Take in one message of an agent, a sentinel or the launcher.

        False when it was known already or is of an attempt that is over: nothing has changed then.
        Raises :class:`BadMessage` when it cannot be true; nothing has changed then, either.
        """
        kind = type(message)
        if isinstance(message, m.FromRank):
            message = self.lives.own(self, message)
            handler = RANK_HANDLERS.get(kind, fromranks.nothing)
            return fromranks.take(self, message, handler, LATE_HANDLERS.get(kind), received_s)
        if isinstance(message, m.FromNode):
            node_handler = NODE_HANDLERS.get(kind, fromnodes.nothing)
            return fromnodes.take(self, message, node_handler, received_s)
        if not isinstance(message, m.RunEnd) or self.run_end is not None:
            return False
        self.run_end = message
        self.run_end_s = received_s
        self.news()
        return True

    def tick(self, now_s: float) -> None:
        """Time went on. Called whenever the hub diagnoses."""
        if self.last_tick_s is not None and now_s - self.last_tick_s > AWAY_S:
            self.hub_was_away(now_s)
        self.last_tick_s = now_s
        self.numerics.tick(self, now_s)
        self.lateness.take(self.paces)

    def hub_was_away(self, until_s: float) -> None:
        """The hub was stopped, or is another one, since the last tick: silence counts anew."""
        if self.last_tick_s is None:
            return
        self.away_from_s = self.last_tick_s
        self.away_until_s = until_s
        self.blind.append((self.last_tick_s, until_s))
        del self.blind[:-MAX_BLIND]
        silence.hub_was_away(self.ranks, self.nodes, self.away_from_s, until_s)
        self.last_tick_s = until_s

    def news(self) -> None:
        """Something changed that is no rank's row and is worth a diagnosis at once."""
        self.version += 1
        self.head_changed = self.version
        self.urgent = True

    def reserve(self, size: int) -> None:
        """Make room for ``size`` ranks."""
        self.ranks.reserve(size)
        self.sequences.reserve(size)
        self.clocks.reserve(size)
        for part in self.parts():
            part.reserve(self.ranks.size)
        # Rows that nobody was told of come into being.
        self.ranks.changed[:] = self.version + 1

    def begin_attempt(self, attempt: int) -> None:
        """The ranks of a later attempt speak: what was known of the earlier ones is past."""
        self.lives.ending(self)
        self.attempt = attempt
        self.ranks.clear()
        self.sequences.restart_all()
        self.clocks.clear()
        self.words.forget_all()
        for part in self.parts():
            part.forget_all()
        self.news()
        self.ranks.changed[:] = self.version

    # --- answers ------------------------------------------------------------------------------

    def knows_rank(self, rank: int) -> bool:
        return rank < self.ranks.size and bool(self.ranks.known[rank])

    def size(self) -> int:
        """How many ranks there are rows for: all of the world, as far as the columns reach."""
        if self.world_size:
            return min(self.world_size, MAX_SIZE)
        return int(self.ranks.heard().nonzero()[0].max(initial=-1)) + 1

    def complete_step(self) -> int:
        """The last step completed by every rank that was heard of."""
        heard = self.ranks.heard()
        return int(self.ranks.step[heard].min()) if heard.any() else 0

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


RankHandler = Callable[[RunState, Any, float], None]
"""(state, message, when it was received): what a fresh message of that kind does."""

NodeHandler = Callable[[RunState, Any, Sentinel, float], None]

RANK_HANDLERS: dict[type[m.Message], RankHandler] = {
    m.Beat: fromranks.beat,
    m.Hello: fromranks.hello,
    m.Groups: fromranks.groups,
    m.Raised: fromranks.raised,
    m.ProbeFault: fromranks.probe_fault,
    m.Goodbye: fromranks.goodbye,
    m.Stacks: fromranks.stacks,
    m.Operations: fromranks.operations,
    m.Saving: fromranks.saving,
    m.Controlled: fromranks.controlled,
    m.Signs: numerics.signs,
    m.Checksums: numerics.checksums,
    m.ParameterNorms: numerics.parameter_norms,
}

LATE_HANDLERS: dict[type[m.Message], RankHandler] = {
    m.Beat: fromranks.records,
    m.Saving: fromranks.save_ended,
    m.Controlled: fromranks.control_ended,
    m.Signs: numerics.signs,
    m.Checksums: numerics.checksums,
}
"""What is still true of a message that a newer one of the same rank has overtaken."""

NODE_HANDLERS: dict[type[m.Message], NodeHandler] = {
    m.NodeHello: fromnodes.node_hello,
    m.NodeReport: fromnodes.node_report,
    m.ProcessEnded: fromnodes.process_ended,
    m.ForeignStacks: fromnodes.foreign_stacks,
}
