"""Waiting for a checkpoint that was asked for."""

import getpass
import os
import time

from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import CheckpointsView, SaveOutcome
from rankscope.tui import source
from rankscope.tui.feed.client import HubClient

ASK_EVERY_S = 0.2


def author() -> str:
    """Who asks, for the log of the run."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        name = f"user {os.getuid()}"
    return f"{name}@{os.uname().nodename}"


def await_outcome(client: HubClient, request: int, timeout_s: float) -> SaveOutcome:
    """What came of ``request``. Raises :class:`UserError` after ``timeout_s``, or when the hub has
    given it up."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        view = source.ask(client, "checkpoints", CheckpointsView)
        for outcome in view.outcomes:
            if outcome.request == request:
                return outcome
        if view.request != request and not view.ranks:
            # Looked at again, for it may have ended between one and the other.
            view = source.ask(client, "checkpoints", CheckpointsView)
            if not any(outcome.request == request for outcome in view.outcomes):
                raise UserError("the ranks did not agree on a step to save at", Exit.PROBLEM)
            continue
        if time.monotonic() > deadline_s:
            text = view.pending or "it is not done"
            raise UserError(f"no checkpoint within {timeout_s:.0f} s: {text}", Exit.TIMED_OUT)
        time.sleep(ASK_EVERY_S)


def document(request: int, outcome: SaveOutcome | None) -> str:
    """For ``--json``: ``outcome`` is null when it was not waited for."""
    return jsontext.dumps({"request": request, "outcome": outcome})
