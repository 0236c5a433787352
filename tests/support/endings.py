"""Ends of runs as ranks, sentinels and a launcher told them, to be heard in any order.

Each function below plays one end, message by message and with its times, as it was recorded of a
real run. Nothing reaches the hub until :func:`hear`: each connection keeps its order, and what
comes on which of them first is chance.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankscope.protocol import codec, shapes
from rankscope.protocol import messages as m
from support.control import command, controlled
from support.world import World

PEERS = ("launcher", "rank 0", "rank 1", "node-0", "node-1")
AUTHOR = "ada@laptop"
PATH = "/c/step-00000004"


class Told(NamedTuple):
    """A message on its way."""

    at_s: float
    peer: bytes
    frame: bytes


class Ending(World):
    """A run that has trained; what is said once it ``ends`` is kept for :func:`hear`."""

    def __init__(self, ranks: int = 2, **options: Any) -> None:
        self.told: list[Told] | None = None
        super().__init__(ranks, **options)
        for rank in self.ranks:
            self.from_rank(rank, m.Saving, step=0, request=0, phase="idle", phase_t_s=0.0)
            controlled(self, rank, saver=True)
        for _ in range(3):
            self.step()
        self.tick()

    def send(self, message: m.Message, peer: str = "a") -> None:
        if self.told is None:
            super().send(message, peer)
        else:
            self.told.append(Told(self.now_s, peer.encode(), codec.encode(message)))

    def ends(self) -> None:
        """With a last step; what is said from now on is on its way."""
        self.told = []
        self.step()

    def later(self, seconds: float) -> None:
        self.now_s += seconds

    def asked(self, name: str) -> int:
        """An operator's command, and its number."""
        return command(self, name, AUTHOR).reference

    def saving(self, rank: int, phase: str, **fields: Any) -> None:
        since_s = self.now_s + self.ranks[rank].clock_s
        self.from_rank(rank, m.Saving, phase=phase, phase_t_s=since_s, step=4, **fields)

    def leaves(self, *ranks: int, code: int = 0) -> None:
        """Their loops are over: the agents' last words, and their processes' ends, in order."""
        for rank in ranks:
            self.phase(rank, m.Phase.ENDED)
            self.goodbye(rank)
            self.later(0.01)
        for rank in ranks:
            self.later(0.05)
            self.exits(rank, code, finished=True)
            self.report(self.ranks[rank].host)
        self.later(0.1)


def finished(world: Ending) -> None:
    world.ends()
    world.leaves(0, 1)
    world.run_end(0)


def stopped(world: Ending) -> None:
    request = world.asked("stop")
    world.ends()
    _stop(world, "stop", request)


def paused_and_stopped(world: Ending) -> None:
    pause = world.asked("pause")
    world.step()
    of = {"request": pause, "command": "pause", "boundary": 4, "saver": True}
    for rank in (0, 1):
        controlled(world, rank, "paused", **of)
    world.tick()
    world.later(0.5)
    stop = world.asked("stop")
    world.told = []
    text = f"paused after step 4, ended by the stop of {AUTHOR}"
    for rank in (0, 1):
        controlled(world, rank, "done", stop_step=4, text=text, **of)
    _stop(world, "stop", stop)


def saved_and_stopped(world: Ending) -> None:
    request = world.asked("checkpoint-and-stop")
    world.ends()
    for rank in (1, 0):
        of = {"command": "checkpoint-and-stop", "boundary": 4, "saver": True}
        controlled(world, rank, "saving", request=request, **of)
        world.saving(rank, "staging", request=request)
    world.later(0.1)
    for rank in (0, 1):
        world.saving(rank, "syncing" if rank else "publishing", request=request)
    world.later(0.1)
    for rank in (0, 1):
        world.saving(rank, "done", request=request, path=PATH, text="checkpoint of step 4 complete")
    _stop(world, "checkpoint-and-stop", request)


def _stop(world: Ending, name: str, request: int) -> None:
    text = f"{'saved, and ' * (name != 'stop')}training stops after step 4"
    of = {"command": name, "boundary": 4, "saver": True, "stop_step": 4}
    for rank in (1, 0):
        controlled(world, rank, "done", request=request, text=text, **of)
        controlled(world, rank, "idle", saver=True, stop_step=4)
    world.leaves(1, 0)
    world.run_end(0)


def raised(world: Ending) -> None:
    """Rank 1 raises, rank 0 loses it, and the launcher ends rank 0."""
    world.ends()
    world.raises(1)
    world.later(0.02)
    world.raises(0, "RuntimeError", from_peer=True, message="Connection closed by peer")
    world.later(0.05)
    world.exits(1, 1)
    _launcher_ends(world, 0)


def killed(world: Ending) -> None:
    """SIGKILL of rank 1: rank 0 feels it before anybody sees it."""
    world.ends()
    world.later(0.05)
    world.raises(0, "RuntimeError", from_peer=True, message="Connection reset by peer")
    world.kill(1, ago_s=0.01)
    world.report(world.ranks[1].host)
    _launcher_ends(world, 0)


def left_early(world: Ending) -> None:
    """``os._exit(0)`` in rank 1, which said no goodbye."""
    world.ends()
    world.exits(1, 0, finished=False)
    world.later(0.02)
    world.raises(0, "RuntimeError", from_peer=True, message="Connection reset by peer")
    _launcher_ends(world, 0)


def _launcher_ends(world: Ending, rank: int) -> None:
    world.later(0.25)
    world.kill(rank, 15)
    world.report(world.ranks[rank].host)
    world.later(0.2)
    world.run_end(1)


def terminated(world: Ending) -> None:
    """SIGTERM of the launcher, which hands it to all."""
    world.ends()
    world.kill(1, 15)
    world.later(0.02)
    world.kill(0, 15)
    world.later(0.2)
    world.run_end(1, asked=15)


def terminated_by_hand(world: Ending) -> None:
    """SIGTERM of rank 1, and of nobody else: the launcher ends rank 0."""
    world.core.launcher_lives = lambda: world.state.run_end is None
    world.ends()
    world.kill(1, 15)
    _launcher_ends(world, 0)


ENDINGS: dict[str, Callable[[Ending], None]] = {
    one.__name__: one
    for one in (
        *(finished, stopped, paused_and_stopped, saved_and_stopped),
        *(raised, killed, left_early, terminated, terminated_by_hand),
    )
}


# --- hearing it ----------------------------------------------------------------------------------


Order = Callable[[list[Told]], list[Told]]
"""From when messages are sent to when they arrive."""


def orders(count: int, most_s: float, nodes: int) -> Iterator[Order]:
    """Ways in which they may arrive: at once; each connection behind all others, and before them;
    and ``count`` by chance. Nothing is later than ``most_s``."""
    peers = PEERS[: 3 + nodes]
    yield list
    for one in peers:
        yield _Late({one.encode(): most_s}, 0.0)
        yield _Late({one.encode(): 0.0}, most_s)
    for seed in range(count):
        rng = random.Random(seed)
        slow_s = {peer.encode(): rng.choice((0.0, 0.02, 0.2, most_s)) for peer in peers}
        yield _Late(slow_s, 0.0, rng)


@dataclass(frozen=True)
class _Late:
    """Each connection as late as ``by_s`` says, others by ``else_s``; with ``rng`` that at most."""

    by_s: dict[bytes, float]
    else_s: float
    rng: random.Random | None = None

    def __call__(self, told: list[Told]) -> list[Told]:
        last_s: dict[bytes, float] = {}
        found = []
        for one in told:
            share = 1.0 if self.rng is None else self.rng.random()
            at_s = one.at_s + share * self.by_s.get(one.peer, self.else_s)
            last_s[one.peer] = at_s = max(last_s.get(one.peer, 0.0), at_s)
            found.append(one._replace(at_s=at_s))
        return sorted(found, key=lambda one: one.at_s)


def hear(world: Ending, order: Order, tail_s: float = 5.0) -> Iterator[shapes.Status]:
    """The hub takes it in; what it says whenever something calls for a look, or time has gone."""
    assert world.told
    told, world.told = order(world.told), None
    begin_s, end_s = told[0].at_s, told[-1].at_s
    often = itertools.takewhile(lambda at_s: at_s < end_s + 1.0, itertools.count(begin_s, 0.25))
    ticks = [*often, *(end_s + 1.0 + later_s for later_s in range(int(tail_s)))]
    moments = [*told, *(Told(at_s, b"", b"") for at_s in ticks)]
    for one in sorted(moments, key=lambda one: one.at_s):
        world.now_s = one.at_s
        if one.frame:
            world.core.receive(one.peer, "agent", one.frame, one.at_s)
            if not world.state.urgent:
                continue
        yield world.status()
