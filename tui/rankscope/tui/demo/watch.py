"""Following a demonstration from the process that launched it."""

import contextlib
import time
from collections.abc import Callable

from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Overview
from rankscope.tui.demo.progress import Losses
from rankscope.tui.feed.client import HubClient
from rankscope.tui.launcher.session import Session

EVERY_S = 1.0
ANSWER_S = 0.5


class Watch:
    """Asks for the overview about once a second, for as long as the command runs."""

    def __init__(self, session: Session, show: Callable[[Overview], None]) -> None:
        self.losses = Losses()
        self._show = show
        self._next_s = 0.0
        self._client = HubClient(session.endpoint, session.directory.read_key("viewer"))

    def tick(self) -> None:
        """Ask and show, when a second has gone by. To be called often."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            overview = self.look()
            if overview is not None:
                self._show(overview)

    def look(self) -> Overview | None:
        """The overview now; None when the hub does not answer (it may be being restarted)."""
        with contextlib.suppress(UserError):
            body = self._client.ask("overview", timeout_s=ANSWER_S).body
            if isinstance(body, Overview):
                self.losses.take(body.history)
                return body
        return None

    def close(self) -> None:
        self._client.close()
