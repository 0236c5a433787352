"""The keys that move through time, and the picture that stands still."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.feed.poller import Poller, Snapshot

SCRUB_NOTICE = "going back: the recording is being opened"
GOING_NOTICE = "going there"
"""In a large run that takes seconds: the key was taken."""


OVER_NOTICE = "the run is over: nothing comes later; [ goes back in it"


class TimeKeys:
    """For the app: one method for each of ``TIME_ACTIONS``."""

    if TYPE_CHECKING:
        _poller: Poller
        _picture: Picture
        _notice: str

        def _moved(self, notice: str = "") -> None: ...
        def action_move(self, direction: str) -> None: ...
        def draw(self) -> None: ...

    _kept: Snapshot | None = None
    """The newest snapshot while the picture is frozen."""

    def action_scrub(self, by_s: int) -> None:
        if self._at_the_end(by_s):
            return
        was_live = self._poller.times.is_live
        said = self._poller.times.scrub(by_s, self._picture.snapshot.hub_s)
        self._moved(said or (SCRUB_NOTICE if was_live else GOING_NOTICE))

    def action_jump(self, direction: int) -> None:
        if self._at_the_end(direction):
            return
        was_live = self._poller.times.is_live
        said = self._poller.times.jump(direction, self._picture.snapshot.hub_s)
        self._moved(said or (SCRUB_NOTICE if was_live else GOING_NOTICE))

    def action_pace(self, steps: int) -> None:
        self._moved(self._poller.times.pace(steps))

    def action_to_end(self) -> None:
        if self._picture.frozen_t_s is not None:
            self._thaw()
        elif self._poller.times.is_live:
            self.action_move("last")
            return
        self._poller.times.to_end()
        self._moved()

    def action_hold(self) -> None:
        if not self._poller.times.is_live:
            self._poller.times.toggle()
            self._moved()
        elif self._at_the_end(1):
            return
        elif self._picture.frozen_t_s is None:
            self._picture = replace(self._picture, frozen_t_s=time.monotonic())
            self._moved("frozen; p goes on")
        else:
            self._thaw()
            self._moved()

    def _at_the_end(self, direction: int) -> bool:
        """Whether there is nothing later because the run is over; then that is said."""
        over = self._poller.times.is_live and self._picture.ended and direction > 0
        if over:
            self._moved(OVER_NOTICE)
        return over

    def _thaw(self) -> None:
        snapshot = self._kept or self._picture.snapshot
        self._kept = None
        self._picture = replace(self._picture, snapshot=snapshot, frozen_t_s=None)

    def _holds(self, snapshot: Snapshot) -> bool:
        """Whether the picture stays as it is although there is a newer one."""
        if snapshot.past is not None and self._notice in (SCRUB_NOTICE, GOING_NOTICE):
            self._notice = ""
        if self._picture.frozen_t_s is None:
            return False
        if snapshot.past is not None:  # one has gone back in time from the frozen picture
            self._thaw()
            return False
        self._kept = snapshot
        return True

    def _time_notice(self) -> str:
        """What there is to say of the last move, once; empty for nothing."""
        return self._poller.times.take_notice()
