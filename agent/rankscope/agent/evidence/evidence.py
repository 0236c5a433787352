"""What a rank says of a stall, when it suspects one and when it is asked. The sending thread's own.

The cheap part (stacks) goes with every word; the recorder is dumped once a stall, and again only
when a collective was enqueued since.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from rankscope.agent.clock.phases import Snapshot
from rankscope.agent.evidence import blackbox, recorder, stacks
from rankscope.agent.evidence.answers import Answers
from rankscope.agent.evidence.blackbox import Call
from rankscope.agent.evidence.expecting import PAUSE, Expecting
from rankscope.agent.evidence.suspicion import Suspicion
from rankscope.protocol import limits
from rankscope.protocol.messages import (
    CollectiveStatus,
    FromRank,
    Operations,
    Phase,
    Stacks,
    StepRecord,
    Thread,
)

ASKED, STALLED, RAISED = "asked", "stalled", "raised"

LONG_S = 0.25
"""A thread that has been in one phase for so long is looked at for what it may be about."""

FULL_WORLD, SHORT_WORLD = 256, 4096
"""Up to so many ranks a stalled one sends all its stacks, or the beginning of one."""

SHORT_FRAMES = 24
STILL_S = 0.3
"""A rank that moved so lately advances: its recorder is not dumped, which would hold it up."""

FEW = 400
"""Early in a run, with so few entries, a dump takes some milliseconds and is always given."""

ADVANCING = "the rank advances: only the calls of its own code are listed, not DDP's and FSDP's"
NO_RECORDER = "this torch has no flight recorder: which collectives were called is not known"
RECORDER_OFF = "the flight recorder is off or empty: set TORCH_FR_BUFFER_SIZE=2000 to have it"

Words = Iterator[tuple[type[FromRank], dict[str, Any]]]


class Evidence:
    """Of one rank. ``training`` is the ident of its training thread, ``hidden`` are our own."""

    def __init__(
        self,
        expecting: Expecting,
        training: Callable[[], int],
        hidden: Callable[[], Sequence[int]],
        sources: Callable[[], recorder.Sources] = dict,
        calls: Callable[[], list[Call]] = list,
        world_size: Callable[[], int] = lambda: 1,
    ) -> None:
        """``sources`` and ``calls`` are what is known of the calls of the rank's own code."""
        self.expecting = expecting
        self.answers = Answers()
        self.answers.offer("stacks", lambda: self._stacks(ASKED))
        self.answers.offer("operations", lambda: self._operations(ASKED))
        self.suspicion = Suspicion()
        self._training = training
        self._hidden = hidden
        self._sources = sources
        self._calls = calls
        self._world_size = world_size
        self._snapshot: Snapshot | None = None
        self._statuses: tuple[CollectiveStatus, ...] = ()
        self._told: tuple[CollectiveStatus, ...] | None = None  # as of the last dump of a stall
        self._raised = False

    # what the talking tells

    def saw(self, snapshot: Snapshot, statuses: tuple[CollectiveStatus, ...]) -> None:
        self._snapshot, self._statuses = snapshot, statuses

    def completed(self, steps: Sequence[StepRecord]) -> None:
        self.suspicion.completed([step.step_s for step in steps])

    def raised(self) -> None:
        """An exception is ending the rank: what its collectives were is to be known."""
        self._raised = True

    def hub_is_new(self) -> None:
        self.suspicion.again()
        self._told = None

    # what it is asked

    def expected(self, snapshot: Snapshot, now: float) -> str:
        """What may take long just now, in a word; empty when nothing is known to."""
        if snapshot.phase is Phase.ENDED:
            return ""
        frame = None
        if now - snapshot.since_s >= LONG_S:
            frame = sys._current_frames().get(self._training())
        return self.expecting.now(stacks.places(frame))

    def words(self, now: float, expecting: str) -> Words:
        """The messages that are due, without their head."""
        if self._raised:
            self._raised = False
            yield from self._operations(RAISED)
        for answer in self.answers.due(now):
            yield from answer()
        snapshot = self._snapshot
        if snapshot is None or snapshot.phase is Phase.ENDED or expecting == PAUSE:
            return
        progress = (snapshot.activity, snapshot.step, self._statuses)
        if self.suspicion.look(now, progress, expecting=bool(expecting)):
            yield from self._stacks(STALLED)
            if self._told is None or self._told != self._statuses:
                self._told = self._statuses
                yield from self._operations(STALLED)

    def _stacks(self, why: str) -> Words:
        snapshot = self._snapshot
        where = {} if snapshot is None else {"step": snapshot.step, "phase": snapshot.phase}
        told = stacks.evidence(why, self._training(), self._hidden())
        if why == STALLED:
            told["threads"] = unasked_threads(told["threads"], self._world_size())
        yield Stacks, told | where

    def _operations(self, why: str) -> Words:
        few = sum(max(0, one.last_enqueued) for one in self._statuses) <= FEW
        if why == ASKED and not few and self.suspicion.still_s(time.monotonic()) < STILL_S:
            yield Operations, self._while_advancing()
            return
        dumps = recorder.dumps()
        entries = [entry for dump in dumps for entry in recorder.read(dump)]
        entries.sort(key=lambda entry: entry.time_created_ns)
        note = ""
        if not entries and self._statuses:
            note = RECORDER_OFF if dumps else NO_RECORDER
        most = limits.MAX_OPERATIONS if why == ASKED else unasked_operations(self._world_size())
        operations = recorder.operations(entries[-most:], self._sources(), time.time_ns())
        fields = {"why": why, "statuses": self._statuses, "operations": operations, "note": note}
        if why == ASKED or operations or self._statuses or note:  # unasked only what says something
            yield Operations, fields

    def _while_advancing(self) -> dict[str, Any]:
        completed = {one.group: one.last_completed for one in self._statuses}
        operations = (
            msgspec.structs.replace(one, state="completed")
            if one.seq <= completed.get(one.group, -1)
            else one
            for one in blackbox.operations(self._calls(), time.time_ns())
        )
        return {
            "why": ASKED,
            "statuses": self._statuses,
            "operations": tuple(operations),
            "note": ADVANCING,
        }


def unasked_operations(world_size: int) -> int:
    """How many operations a rank sends by itself: all ranks of a world may do so at once."""
    return max(8, min(limits.MAX_OPERATIONS, 64 * limits.MAX_OPERATIONS // world_size))


def unasked_threads(threads: tuple[Thread, ...], world_size: int) -> tuple[Thread, ...]:
    """What a rank sends of its stacks by itself; in a very large world the source alone."""
    if world_size <= FULL_WORLD:
        return threads
    if world_size > SHORT_WORLD:
        return ()
    return tuple(
        msgspec.structs.replace(one, frames=one.frames[:SHORT_FRAMES])
        for one in threads
        if one.main
    )
