"""Asking the run's ranks for something, and waiting for what comes of it."""

import getpass
import os
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rankscope.protocol import jsontext, pasting
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import CheckpointsView, Command, Overview, SaveOutcome, Status
from rankscope.tui import source
from rankscope.tui.arguments import OneLineParser, add_json, add_run, number
from rankscope.tui.feed.client import HubClient
from rankscope.tui.text.output import complain, toned, write
from rankscope.tui.words.checkpoints import beyond
from rankscope.tui.words.commands import NEEDS_ALL, SAVING, cannot_follow, held_back, spoilt

ASK_EVERY_S = 0.2
LOOK_EVERY_S = 1.0
"""How often it is looked whether all ranks can follow what is asked for."""
CANCEL = "rankscope cancel gives it up"
CANCELLED_S = 10.0
"""How long it is waited for that the ranks give up what cannot happen."""
GONE_S = 2.0
"""A request that is neither in work nor over for so long is known to nobody."""


def author() -> str:
    """Who asks, for the log of the run."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        name = f"user {os.getuid()}"
    return f"{name}@{os.uname().nodename}"


def add_waiting(parser: OneLineParser, default_s: int = 600) -> None:
    """The options of every command that asks."""
    add_run(parser)
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--no-wait", action="store_true", help="return once it is asked for")
    how_long.add_argument(
        "--wait",
        action="store_true",
        help="wait also for a rank that hangs or is stopped, in case it goes on",
    )
    parser.add_argument(
        "--timeout",
        type=number(1),
        default=default_s,
        metavar="SECONDS",
        help="how long to wait for what comes of it",
    )
    add_json(parser)


def ask(given: Namespace, command: str, **args: int | str) -> int:
    """Do all of it, and print what came of it; the exit code."""
    with source.open_client(given) as client:
        reply = client.command(command, author=author(), args=args)
        if not reply.accepted:
            raise UserError(reply.text, Exit.PROBLEM)
        if command in SAVING:
            with suppress(UserError):  # it is given already, whatever is not known of it
                for text in spoilt(command, source.ask(client, "status", Status)):
                    complain(f"rankscope: {text}")
        waiting = Waiting(client, command, stays=given.wait or given.no_wait)
        if given.no_wait:
            waiting.look()
            if given.json:
                print(document(reply.reference, None, None))
            else:
                write([reply.text])
            return Exit.FINE
        try:
            found, outcome = await_end(
                client, command, reply.reference, given.timeout, waiting.look
            )
        except CannotFollow:
            found, outcome = give_up(client, command, reply.reference)
        except KeyboardInterrupt:
            complain(f"rankscope: {waiting.still_asked()}")
            raise
    if given.json:
        print(document(reply.reference, found, outcome))
    else:
        write([line(found, outcome)])
    return Exit.FINE if found.state in ("done", "paused") else Exit.PROBLEM


class CannotFollow(Exception):
    """A rank does not come to the end of a step: what is asked for cannot happen."""


class Waiting:
    """What whoever waits is told meanwhile, on stderr: once, as soon as it is known."""

    def __init__(self, client: HubClient, command: str, *, stays: bool) -> None:
        """``stays``: what cannot happen stays asked for all the same, in case the rank goes on."""
        self._client = client
        self._command = command
        self._stays = stays
        self._told = False
        self._looked_s = -LOOK_EVERY_S

    def look(self, view: CheckpointsView | None = None) -> None:
        """Say who does not come, why, and what to do then, where that is so.

        Raises :class:`CannotFollow` where that is known for certain, unless it is to stay.
        """
        now_s = time.monotonic()
        done = self._command not in NEEDS_ALL or (self._told and self._stays)
        if done or _has_its_parts(view) or now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        with suppress(UserError):  # it is asked for already, whatever is not known of the rest
            status = source.ask(self._client, "status", Status)
            overview = source.ask(self._client, "overview", Overview)
            gives_up = not self._stays and cannot_follow(self._command, status)
            if not self._told or gives_up:
                for text in held_back(self._command, status, overview, stays=not gives_up):
                    complain(f"rankscope: {self._named(text)}")
                    self._told = True
            if gives_up:
                raise CannotFollow

    def still_asked(self) -> str:
        """That what was asked for stays so though nobody waits for it, and how to give it up."""
        if self._command in ("cancel", "resume"):
            return f"not waited for any more; the {self._command} stays asked for"
        what = self._command.replace("-and-", " and ")
        return self._named(f"not waited for any more; the {what} stays asked for: {CANCEL}")

    def _named(self, text: str) -> str:
        return pasting.named(text, self._client.run_words)


def _has_its_parts(view: CheckpointsView | None) -> bool:
    """Whether the ranks were at their boundary and a save goes on without them."""
    return view is not None and view.command is not None and view.command.state == "saving"


def give_up(client: HubClient, command: str, request: int) -> tuple[Command, SaveOutcome | None]:
    """Have the ranks cancel ``request``, which is a ``command``; what came of it, which may be
    that it was done. Raises :class:`UserError` where they do not say."""
    what = command.replace("-and-", " and ")
    # Nobody has asked for that: the log is to say who did.
    reply = client.command("cancel", author=f"rankscope {what} ({author()})", args={})
    try:
        return await_end(client, command, request, CANCELLED_S)
    except UserError as error:
        if error.exit_code != Exit.TIMED_OUT:
            raise
        pending = source.ask(client, "checkpoints", CheckpointsView).pending
        told = pending if reply.accepted else reply.text
        raise UserError(f"it is not given up yet: {told}", Exit.PROBLEM) from None


def await_end(
    client: HubClient,
    command: str,
    request: int,
    timeout_s: float,
    each: Callable[[CheckpointsView], None] = lambda _: None,
) -> tuple[Command, SaveOutcome | None]:
    """What came of ``request``, which is a ``command``; of a pause, that the ranks stand.

    ``each`` is called at every look that finds it in work. Raises :class:`UserError` after
    ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    known_s = time.monotonic()
    while True:
        view = source.ask(client, "checkpoints", CheckpointsView)
        saved = next((one for one in view.outcomes if one.request == request), None)
        for over in view.commands:
            if over.request == request:
                return over, saved
        now = view.command
        if now is not None and now.request == request and now.state == "paused":
            return now, None
        if in_work(view, command, request):
            known_s = time.monotonic()
            each(view)
        if time.monotonic() - known_s > GONE_S:
            if command == "cancel":
                text = "nothing is in work any more that could be cancelled"
                return Command(request, command, author(), 0.0, "done", text), None
            raise UserError("the hub knows nothing of the request any more", Exit.PROBLEM)
        if time.monotonic() > deadline_s:
            text = view.pending or "it is not done"
            told = f"nothing came of it within {timeout_s:.0f} s: {text}"
            if command in NEEDS_ALL and in_work(view, command, request):
                cancel = pasting.named(CANCEL, client.run_words)
                told = f"{told}; it stays asked for: {cancel}"
            raise UserError(told, Exit.TIMED_OUT)
        time.sleep(ASK_EVERY_S)


def in_work(view: CheckpointsView, command: str, request: int) -> bool:
    """Whether the hub has ``request``, which is a ``command``, in work."""
    if command in ("cancel", "resume"):  # in work is what they are to end
        return view.command is not None or view.paused is not None or bool(view.ranks)
    return view.command is not None and view.command.request == request


def line(found: Command, saved: SaveOutcome | None) -> str:
    """What came of it, as text."""
    from rankscope.tui.text.saving import outcome_line

    if saved is not None and found.command == "checkpoint":
        return outcome_line(saved)
    good = found.state in ("done", "paused")
    word = found.state.replace("-", " ")
    rest = beyond(word, found.text)
    mark = toned(f"{'✓' if good else '✗'} {word}", "good" if good else "bad")
    more = f"   {saved.path}" if saved is not None and saved.ok else ""
    return f"{mark}{'   ' if rest == found.text else ' '}{rest}{more}".rstrip()


def document(request: int, found: Command | None, saved: SaveOutcome | None) -> str:
    """For ``--json``: ``command`` and ``outcome`` are null when they were not waited for."""
    told: dict[str, Any] = {"request": request, "command": found, "outcome": saved}
    return jsontext.dumps(told)
