"""What the one-shot commands ask: a run's status and overview, from wherever they come."""

from pathlib import Path
from typing import TypeVar

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Overview, Shape, Status
from rankscope.tui import reach
from rankscope.tui.feed.client import HubClient

S = TypeVar("S", bound=Shape)


def open_client(run: str | None, endpoint: str | None, key: Path | None) -> HubClient:
    """A client for RUN, or for ``--endpoint`` with ``--key``."""
    if endpoint is None and key is None:
        return reach.connect(reach.choose(run))
    if endpoint is None or key is None:
        raise UserError("--endpoint and --key belong together: give both or neither")
    if run is not None:
        raise UserError("give a run, or --endpoint with --key, not both")
    return reach.connect_remote(endpoint, key)


def ask(client: HubClient, view: str, shape: type[S]) -> S:
    """The whole ``view``."""
    body = client.ask(view).body
    if not isinstance(body, shape):
        raise UserError(f"the hub's {view} is empty; use one rankscope version on both sides")
    return body


def status_of(run: str | None, endpoint: str | None = None, key: Path | None = None) -> Status:
    with open_client(run, endpoint, key) as client:
        return ask(client, "status", Status)


def status_and_overview(
    run: str | None, endpoint: str | None = None, key: Path | None = None
) -> tuple[Status, Overview]:
    with open_client(run, endpoint, key) as client:
        return ask(client, "status", Status), ask(client, "overview", Overview)
