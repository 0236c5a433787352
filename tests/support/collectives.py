"""Ranks of a ``World`` that train with collectives: a loop of all-reduces, played by hand.

job = Job(World(ranks=4))
job.steps(12)                     # every rank completes steps, each with the same collectives
job.enters("all_reduce [8] float32", ranks=(0, 1, 2))     # three ranks wait in the next one
job.hang(3.0)                     # nothing moves; who waits says what it is in
"""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from rankscope.protocol import messages as m
from support.world import World

TOKENS = "all_reduce [1] int64"
BUCKET = "all_reduce [512] float32"
STEP = (TOKENS, BUCKET, BUCKET)
"""The collectives of one step."""

Call = tuple[str, int, str, str]
"""Group, number, what it is, the line that called it."""


class Job:
    """Keeps each rank's calls and sends what an agent would send of them."""

    def __init__(self, world: World, groups: dict[str, Sequence[int]] | None = None) -> None:
        self.world = world
        everyone = tuple(world.ranks)
        self.groups = {"0": everyone} | {k: tuple(v) for k, v in (groups or {}).items()}
        self.calls: dict[int, list[Call]] = {rank: [] for rank in everyone}
        self.entered: dict[int, dict[str, int]] = {rank: {} for rank in everyone}
        self.completed: dict[int, dict[str, int]] = {rank: {} for rank in everyone}
        for rank in everyone:
            world.from_rank(
                rank,
                m.Groups,
                groups=tuple(
                    m.Group(
                        name,
                        "default_pg" if name == "0" else f"dp{name}",
                        "gloo",
                        len(members),
                        tuple(members),
                    )
                    for name, members in self.groups.items()
                    if rank in members
                ),
            )

    def steps(self, count: int, step_s: float = 0.1) -> Self:
        """All ranks complete ``count`` steps."""
        for _ in range(count):
            for what in STEP:
                self.does(what)
            self.world.step(step_s=step_s)
        for rank in self.calls:
            self.statuses(rank)
        self.world.tick()
        return self

    def does(self, what: str, ranks: Iterable[int] | None = None, group: str = "0") -> Self:
        """A collective that is entered and completed."""
        for rank in self.groups[group] if ranks is None else ranks:
            self._call(rank, what, group, "")
            self.completed[rank][group] = self.entered[rank][group]
        return self

    def enters(
        self,
        what: str,
        ranks: Iterable[int] | None = None,
        group: str = "0",
        source: str = "train.py:20 in train",
    ) -> Self:
        """A collective that is entered and does not end; the ranks say so at once."""
        for rank in self.groups[group] if ranks is None else ranks:
            self._call(rank, what, group, source)
            self.statuses(rank)
        return self

    def _call(self, rank: int, what: str, group: str, source: str) -> None:
        seq = self.entered[rank].get(group, 0) + 1
        self.entered[rank][group] = seq
        self.calls[rank].append((group, seq, what, source))

    def statuses(self, rank: int) -> None:
        self.world.beat(rank, collectives=self._statuses(rank))

    def _statuses(self, rank: int) -> tuple[m.CollectiveStatus, ...]:
        return tuple(
            m.CollectiveStatus(group, seq, -1, self.completed[rank].get(group, -1))
            for group, seq in self.entered[rank].items()
        )

    def operations(self, rank: int, why: str = "stalled", newest: int = 64) -> Self:
        """The rank tells its newest collectives."""
        self.world.from_rank(
            rank,
            m.Operations,
            why=why,
            statuses=self._statuses(rank),
            operations=operations(
                self.calls[rank][-newest:], self.completed[rank], self.world.now_s
            ),
        )
        return self

    def stack(
        self,
        rank: int,
        source: str = "train.py:20 in train",
        *,
        outside: bool = False,
        holds_gil: bool | None = None,
    ) -> Self:
        """The rank, or its sentinel, tells where its training thread is."""
        place, _, function = source.partition(" in ")
        file, _, line = place.partition(":")
        frames = (
            m.Frame(f"/home/ada/{file}", int(line), function),
            m.Frame("/home/ada/train.py", 99, "main"),
        )
        threads = (m.Thread("MainThread", True, frames, holds_gil),)
        sim = self.world.ranks[rank]
        if outside:
            self._seen(rank, threads=threads, source=source)
        else:
            self.world.from_rank(
                rank, m.Stacks, why="stalled", source=source, threads=threads, step=sim.step
            )
        return self

    def left_behind(self, rank: int, calls: Iterable[Call]) -> Self:
        """The sentinel tells what it found of a rank that has ended."""
        self._seen(rank, threads=(), operations=operations(calls, {}, self.world.now_s))
        return self

    def _seen(self, rank: int, **fields: Any) -> None:
        """The rank's sentinel tells what it saw of it from outside."""
        sim = self.world.ranks[rank]
        who = {"attempt": self.world.count(sim.host), "rank": rank, "pid": sim.pid}
        self.world.from_node(sim.host, m.ForeignStacks, native=False, **who, **fields)

    def hang(self, seconds: float) -> Self:
        """Nothing moves for a while; who can speak goes on speaking."""
        self.world.advance(seconds)
        return self


def operations(
    calls: Iterable[Call], completed: dict[str, int], now_s: float
) -> tuple[m.Operation, ...]:
    """The calls as a flight recorder has them."""
    del now_s
    told = []
    for group, seq, what, source in calls:
        name, _, rest = what.partition(" ")
        sizes, _, dtype = rest.partition(" ")
        state = "completed" if seq <= completed.get(group, 0) else "scheduled"
        told.append(m.Operation(group, seq, f"gloo:{name}", sizes, dtype, state, source, 0.5))
    return tuple(told)
