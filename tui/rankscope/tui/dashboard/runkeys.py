"""Going over from one run to another."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rankscope.protocol.exits import UserError
from rankscope.tui.dashboard.control import Control
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.runwatch import RunWatch
from rankscope.tui.dashboard.source import FEED_ENDS_WITHIN_S, Choice, Source
from rankscope.tui.feed.poller import Poller, Snapshot


class RunKeys:
    """For the app: what Enter does in the list of runs."""

    if TYPE_CHECKING:
        _choice: Choice | None
        _control: Control
        _mailbox: Mailbox[Snapshot]
        _navigation: Navigation
        _notify: Callable[[], None]
        _picture: Picture
        _poller: Poller
        _unlocked: bool
        _watch: RunWatch

        def _moved(self, notice: str = "") -> None: ...
        def _take_control(self, source: Source | None) -> Control: ...

    def _open_run(self, path: str) -> None:
        """Show another run, from its overview on; commands are asked about anew there."""
        if self._choice is None:
            self._moved("other runs cannot be opened from here")
            return
        try:
            source = self._choice.open(path)
        except UserError as error:
            self._moved(str(error))
            return
        left, ends_run = self._poller, self._picture.ends_run
        self._mailbox.listen(None)
        threading.Thread(target=left.stop, args=(FEED_ENDS_WITHIN_S,), daemon=True).start()
        self._mailbox = Mailbox()
        self._poller = source.feed(self._mailbox.put)
        self._unlocked = False
        self._control = self._take_control(source)
        self._navigation = Navigation(self._watch)
        self._picture = Picture(self._poller.latest, source.title, source.readonly, ends_run)
        self._mailbox.listen(self._notify)
        self._poller.start()
        self._moved()
