"""Gives one command over a connection of its own, and follows what comes of it, in a thread."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from rankscope.protocol.exits import UserError
from rankscope.protocol.messages import CommandReply
from rankscope.protocol.shapes import CheckpointsView, Command
from rankscope.tui.feed.client import Reply
from rankscope.tui.words.checkpoints import beyond

ASK_EVERY_S = 0.3
FOLLOW_S = 900.0
"""Longer than any request is kept in work."""

Stage = Literal["sent", "accepted", "refused", "over", "lost"]


@dataclass(frozen=True)
class Word:
    """What is known of a command that was given."""

    command: str
    stage: Stage
    text: str
    saved_step: int | None = None
    """Of a save that is over, when it was made."""


class Connection(Protocol):
    """What is needed of a :class:`~rankscope.tui.feed.client.HubClient`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def ask(self, view: str) -> Reply: ...

    def command(self, name: str, *, author: str) -> CommandReply: ...


class Commander:
    """``connect`` opens a connection with the operator's key."""

    def __init__(self, connect: Callable[[], Connection], author: str) -> None:
        self._connect = connect
        self._author = author
        self._stop = threading.Event()

    def give(self, command: str, tell: Callable[[Word], None]) -> None:
        """Send ``command``; ``tell`` hears, in a thread of its own, of the answer and the end.

        Returns at once. Several commands may be under way; the hub takes one at a time.
        """
        threading.Thread(
            target=self._run, args=(command, tell), name="rankscope-command", daemon=True
        ).start()

    def stop(self) -> None:
        """Follow nothing any more. What was sent stays sent."""
        self._stop.set()

    def _run(self, command: str, tell: Callable[[Word], None]) -> None:
        try:
            with self._connect() as client:
                reply = client.command(command, author=self._author)
                tell(Word(command, "accepted" if reply.accepted else "refused", reply.text))
                if reply.accepted and reply.reference:
                    self._follow(client, command, reply.reference, tell)
        except UserError as error:
            tell(Word(command, "lost", str(error)))
        except Exception as error:  # noqa: BLE001 - a dead thread would leave the user waiting
            tell(Word(command, "lost", f"rankscope failed: {type(error).__name__}: {error}"))

    def _follow(
        self, client: Connection, command: str, request: int, tell: Callable[[Word], None]
    ) -> None:
        until_s = time.monotonic() + FOLLOW_S
        while time.monotonic() < until_s and not self._stop.wait(ASK_EVERY_S):
            view = client.ask("checkpoints").body
            if not isinstance(view, CheckpointsView):
                continue
            text = came_of(view, request)
            if text is not None:
                tell(Word(command, "over", text, _saved_step(view, request)))
                return


def came_of(view: CheckpointsView, request: int) -> str | None:
    """What came of ``request``, in words; None while it is in work. A pause that stands is all
    that was asked for."""
    over: Command | None = next((one for one in view.commands if one.request == request), None)
    saved = next((one for one in view.outcomes if one.request == request), None)
    if over is None and view.request == request:
        saved = None  # what is in work is not over
    if saved is not None and saved.ok and (over is None or over.command == "checkpoint"):
        # In the words of the line that tells of the newest one: a later save may overtake it.
        more = saved.text.partition(saved.path)[2]
        return f"checkpoint of step {saved.step} verified: {saved.path}{more}"
    if over is not None:
        word = over.state.replace("-", " ")
        text = over.text or ("" if saved is None else saved.path or saved.text)
        return f"{over.command} {word}: {beyond(word, text)}".removesuffix(": ")
    if saved is not None:
        return f"checkpoint of step {saved.step} failed: {beyond('failed', saved.text)}"
    work = view.command
    if work is not None and work.request == request and work.state == "paused":
        return f"paused after step {work.step}" if work.step is not None else "paused"
    return None


def _saved_step(view: CheckpointsView, request: int) -> int | None:
    """The step of the checkpoint that came of ``request``."""
    return next((one.step for one in view.outcomes if one.request == request and one.ok), None)
