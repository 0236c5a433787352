"""That torch's store went with its launcher is known at once, and not after the store's timeout."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, TCPStore

from rankscope.agent import storereach
from rankscope.agent.checkpoint import stores

WRAPPED: dict[str, Callable[[Any], Any]] = {
    "bare": lambda store: store,
    "behind a prefix": lambda store: PrefixStore("a", store),
    "behind two": lambda store: PrefixStore("b", PrefixStore("a", store)),
}


class Server:
    """A store that a launcher keeps, until it is gone."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        self.kept: Any = TCPStore(
            "127.0.0.1", self.port, is_master=True, master_listen_fd=listener.detach()
        )
        self.ranks: Any = TCPStore("127.0.0.1", self.port, is_master=False)

    def gone(self) -> None:
        self.kept = None


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.gone()


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_store_that_answers_is_there(server: Server, wrapped: str) -> None:
    """And goes on to answer, whoever has only asked whether it does."""
    store = WRAPPED[wrapped](server.ranks)
    for _ in range(3):
        storereach.check(store)
    store.set("key", "value")
    assert store.get("key") == b"value"


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_store_that_is_gone_is_known_to_be(
    server: Server, wrapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words that say where it was, and before a connection of torch's own is tried."""
    store = WRAPPED[wrapped](server.ranks)
    server.gone()
    with pytest.raises(ConnectionError, match=f"nobody answers at 127.0.0.1:{server.port}"):
        storereach.check(store)
    monkeypatch.setattr(stores, "_get_default_store", lambda: store)
    with pytest.raises(ConnectionError, match="with the launcher as a rule"):
        stores.shared()


def test_what_no_other_process_keeps_is_always_there(tmp_path: Path) -> None:
    """A file, or this process's own memory."""
    for store in (HashStore(), FileStore(str(tmp_path / "store"), 1)):
        storereach.check(store)
        storereach.check(PrefixStore("a", store))
