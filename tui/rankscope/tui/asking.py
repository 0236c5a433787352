"""Asking the run's ranks for something, and waiting for what comes of it."""

import getpass
import os
import time
from argparse import Namespace
from typing import Any

from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import CheckpointsView, Command, SaveOutcome
from rankscope.tui import source
from rankscope.tui.arguments import OneLineParser, add_json, add_run, number
from rankscope.tui.feed.client import HubClient
from rankscope.tui.text.output import toned, write

ASK_EVERY_S = 0.2
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
    parser.add_argument("--no-wait", action="store_true", help="return once it is asked for")
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
        if given.no_wait:
            if given.json:
                print(document(reply.reference, None, None))
            else:
                write([reply.text])
            return Exit.FINE
        found, outcome = await_end(client, reply.reference, given.timeout)
    if given.json:
        print(document(reply.reference, found, outcome))
    else:
        write([line(found, outcome)])
    return Exit.FINE if found.state in ("done", "paused") else Exit.PROBLEM


def await_end(
    client: HubClient, request: int, timeout_s: float
) -> tuple[Command, SaveOutcome | None]:
    """What came of ``request``; of a pause, that the ranks stand. Raises :class:`UserError` after
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
        if now is not None and now.request == request:
            known_s = time.monotonic()
            if now.state == "paused":
                return now, None
        if time.monotonic() - known_s > GONE_S:
            raise UserError("the hub knows nothing of the request any more", Exit.PROBLEM)
        if time.monotonic() > deadline_s:
            text = view.pending or "it is not done"
            raise UserError(f"nothing came of it within {timeout_s:.0f} s: {text}", Exit.TIMED_OUT)
        time.sleep(ASK_EVERY_S)


def line(found: Command, saved: SaveOutcome | None) -> str:
    """What came of it, as text."""
    from rankscope.tui.text.saving import outcome_line

    if saved is not None and found.command == "checkpoint":
        return outcome_line(saved)
    good = found.state in ("done", "paused")
    mark = toned(f"{'✓' if good else '✗'} {found.state}", "good" if good else "bad")
    more = f"   {saved.path}" if saved is not None and saved.ok else ""
    return f"{mark}   {found.text}{more}"


def document(request: int, found: Command | None, saved: SaveOutcome | None) -> str:
    """For ``--json``: ``command`` and ``outcome`` are null when they were not waited for."""
    told: dict[str, Any] = {"request": request, "command": found, "outcome": saved}
    return jsontext.dumps(told)
