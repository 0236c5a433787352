"""One place for the newest snapshot, between the feed's thread and the screen.

The feed waits a little until its snapshot was taken, so a slow terminal is asked for less often;
a newer snapshot replaces one that was not taken, so nothing queues.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

TAKEN_WITHIN_S = 2.0
"""How long the feed waits for a screen that does not draw before it goes on by itself."""


class Mailbox(Generic[Item]):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = threading.Event()
        self._arrived = threading.Event()
        self._item: Item | None = None
        self._notify: Callable[[], None] | None = None
        self._closed = False

    def put(self, item: Item) -> None:
        """From the feed's thread: leave ``item`` and wait until it is taken, but not for long."""
        with self._lock:
            first = self._item is None
            self._item = item
            notify = self._notify
            self._taken.clear()
            self._arrived.set()
        if notify is None or self._closed:
            return
        if first:
            notify()
        self._taken.wait(TAKEN_WITHIN_S)

    def peek(self, within_s: float) -> Item | None:
        """The newest item, left where it is; waits for the first one for ``within_s``."""
        self._arrived.wait(within_s)
        with self._lock:
            return self._item

    def take(self) -> Item | None:
        """The newest item, once; None when there is none that was not taken."""
        with self._lock:
            item, self._item = self._item, None
            self._taken.set()
        return item

    def listen(self, notify: Callable[[], None] | None) -> None:
        """Call ``notify``, in the feed's thread, whenever there is something to take."""
        with self._lock:
            self._notify = notify
            self._closed = notify is None
            self._taken.set()
