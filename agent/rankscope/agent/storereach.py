"""Whether anybody answers where torch's store was.

A launcher that keeps the store takes it along when it dies. To ask that by a new connection of
torch's own takes as long as the store's timeout, which is minutes; a listening socket says it at
once.
"""

import socket
from typing import Any

CONNECT_S = 5.0
"""So long a host may take to answer."""


def check(store: Any) -> None:
    """Raise ``ConnectionError`` where nobody listens any more for ``store``, whose connections that
    are open say nothing of it. What is kept in no other process is always there."""
    while not hasattr(store, "port") and hasattr(store, "underlying_store"):
        store = store.underlying_store
    host, port = getattr(store, "host", ""), getattr(store, "port", 0)
    if not host or not port:
        return
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        raise ConnectionError(
            f"nobody answers at {host}:{port}, where it was kept, with the launcher as a rule "
            f"({error.strerror or error})"
        ) from error
