"""A dashboard over a hub in the same process: real views and commands, no socket, no terminal.

async with board(World(ranks=2).step()) as desk:
    await desk.press("2")
    await desk.sees("rank", "a step")
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
from textual.pilot import Pilot

from rankscope.protocol import codec, limits, shapes
from rankscope.protocol import messages as m
from rankscope.protocol.exits import UserError
from rankscope.tui.dashboard.console import Dashboard
from rankscope.tui.dashboard.leaving import Leaving
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.source import Choice, PollerFactory, Source
from rankscope.tui.feed.client import Reply
from rankscope.tui.feed.poller import Poller, Snapshot
from support.world import World

PATIENCE_S = 30.0


class Link:
    """A client's connection to the hub of a :class:`World`, for several threads."""

    replay = False
    run_words = ""

    def __init__(self, world: World, lock: threading.RLock, role: str = "viewer") -> None:
        self._world, self._lock, self._role = world, lock, role

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        pass

    def superseded(self) -> bool:
        return False

    def ask(
        self,
        view: str,
        *,
        since: int = 0,
        args: dict[str, int | str] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        reply = self._exchange(m.ViewRequest(1, view, since, args or {}))
        assert isinstance(reply, m.ViewReply)
        if reply.error:
            raise UserError(reply.error)
        body = None
        if reply.changed:
            body = msgspec.msgpack.decode(reply.body, type=shapes.VIEWS[view])
        return Reply(view, reply.version, reply.hub_s, reply.changed, body)

    def command(
        self,
        name: str,
        *,
        author: str,
        args: dict[str, int | str] | None = None,
        timeout_s: float | None = None,
    ) -> m.CommandReply:
        reply = self._exchange(m.CommandRequest(1, name, author, args or {}))
        assert isinstance(reply, m.CommandReply)
        return reply

    def _exchange(self, request: m.Message) -> m.Message:
        with self._lock:
            core, peer = self._world.core, f"{self._role}-{threading.get_ident()}".encode()
            core.receive(peer, self._role, codec.encode(request), self._world.now_s)
            mine = [frame for to, frame in core.outbox if to == peer]
            core.outbox[:] = [(to, frame) for to, frame in core.outbox if to != peer]
        return codec.decode(mine[-1], limits.MAX_REPLY_FRAME_BYTES)


def feed(world: World, lock: threading.RLock) -> PollerFactory:
    def make(on_update: Callable[[Snapshot], None]) -> Poller:
        return Poller(lambda: Link(world, lock), 0.02, on_update)

    return make


class Desk:
    """A dashboard and the hub behind it."""

    def __init__(self, app: Dashboard, pilot: Pilot[Any], lock: threading.RLock) -> None:
        self.app, self.pilot, self.lock = app, pilot, lock

    def text(self) -> str:
        return "\n".join(text_of(line).rstrip() for line in self.app.lines)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def sees(self, *words: str) -> str:
        """The screen once it shows all of ``words``."""
        return await self.until(lambda text: all(word in text for word in words), str(words))

    async def until(self, condition: Callable[[str], object], what: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not condition(text := self.text()):
            assert time.monotonic() < deadline, f"not seen: {what}\n{text}"
            await asyncio.sleep(0.02)
        return text


@asynccontextmanager
async def board(
    world: World,
    *,
    size: tuple[int, int] = (80, 24),
    readonly: bool = False,
    unlocked: bool = False,
    choice: Choice | None = None,
) -> AsyncIterator[Desk]:
    """A dashboard over ``world`` until the block ends."""
    lock = threading.RLock()
    source = Source(
        feed(world, lock),
        "run-1",
        readonly=readonly,
        operator=None if readonly else lambda: Link(world, lock, "operator"),
    )
    mailbox: Mailbox[Snapshot] = Mailbox()
    poller = source.feed(mailbox.put)
    poller.start()
    app = Dashboard(
        poller,
        mailbox,
        Leaving(),
        title=source.title,
        readonly=readonly,
        utf8=True,
        source=source,
        choice=choice,
        unlocked=unlocked,
    )
    try:
        async with app.run_test(size=size) as pilot:
            yield Desk(app, pilot, lock)
    finally:
        app.end_feed()
