"""What the one-shot commands ask: a run's status and overview, from wherever they come."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Overview, Shape, Status
from rankscope.tui import reach
from rankscope.tui.feed.client import HubClient
from rankscope.tui.feed.link import LinkError
from rankscope.tui.runs import last_words
from rankscope.tui.text.output import complain
from rankscope.tui.words.marks import safe
from rankscope.tui.words.nohub import as_known, no_hub, since_when

S = TypeVar("S", bound=Shape)

WITH_FINDINGS = ("status", "overview")
"""Views that say themselves that the hub is gone."""


def open_client(given: Namespace) -> HubClient:
    """A client for RUN, or for ``--endpoint`` with ``--key`` (``arguments.add_run``)."""
    if given.endpoint is None and given.key is None:
        return reach.connect_once(reach.choose(given.wanted))
    if given.endpoint is None or given.key is None:
        raise UserError("--endpoint and --key belong together: give both or neither")
    if given.wanted is not None:
        raise UserError("give a run, or --endpoint with --key, not both")
    return reach.connect_remote(given.endpoint, given.key)


def ask(
    client: HubClient, view: str, shape: type[S], args: dict[str, int | str] | None = None
) -> S:
    """The whole ``view``; of a run of which nothing is known any more that is said on stderr."""
    body = client.ask(view, args=args).body
    if view not in WITH_FINDINGS:
        say_if_old(client)
    if not isinstance(body, shape):
        raise UserError(f"the hub's {view} is empty; use one rankscope version on both sides")
    return body


def status_of(given: Namespace) -> Status:
    with open_client(given) as client, last_words_at_least(client):
        return as_known(ask(client, "status", Status))


def status_and_overview(given: Namespace) -> tuple[Status, Overview]:
    with open_client(given) as client, last_words_at_least(client):
        return as_known(ask(client, "status", Status)), ask(client, "overview", Overview)


@contextmanager
def last_words_at_least(client: HubClient) -> Iterator[None]:
    """Of a hub of this machine that says nothing, what its log has open is told with that."""
    try:
        yield
    except LinkError as error:
        worst = None if client.incidents is None else last_words(client.incidents)[0]
        if error.cause != "silent" or worst is None or worst.severity == "info":
            raise
        told = f"{error}; last known: {worst.kind.upper()} {safe(worst.headline)}"
        raise LinkError(error.cause, told, error.exit_code) from None


def say_if_old(client: HubClient) -> None:
    """Say once on stderr since when nothing is known of the run, where no hub is there to do so."""
    if not client.replay or client.age_said:
        return
    client.age_said = True
    gone = no_hub(ask(client, "status", Status))
    if gone is not None:
        complain(f"rankscope: {since_when(gone)}")
