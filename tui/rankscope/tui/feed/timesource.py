"""Which time a dashboard shows: the run as it is, or a moment of its recording.

Keys move it from the screen's thread; the feed's thread asks where it is.
"""

import threading
import time
from collections.abc import Callable

from rankscope.protocol.shapes import Moment, Recording
from rankscope.tui.feed.playhead import Past, Playhead, next_moment_s

NO_PAST = (
    "going back needs the run's directory: on its machine, rankscope replay RUN (p freezes here)"
)

Clock = Callable[[], float]


class TimeSource:
    """Live until one goes back; with ``live`` False always in the recording.

    ``can_go_back``: whether there is a recording at hand. ``begin`` is where a recording that is
    not live begins: ``start``, ``end`` or ``incident`` (the first grave one), or a time in seconds
    from its start (Unix time, when it is that large).
    """

    def __init__(
        self,
        *,
        can_go_back: bool,
        live: bool = True,
        begin: str | float = "start",
        speed: float = 1.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self.can_go_back = can_go_back
        self.has_live = live
        self.on_change: Callable[[], None] = lambda: None
        """Called, in the screen's thread, when one has moved."""
        self._clock = clock
        self._lock = threading.Lock()
        self._begin = None if live else begin
        self._speed = speed
        self._head = None if live else Playhead(0.0, clock(), playing=False, speed=speed)
        self._jump = 0
        self._notice = ""

    # --- the screen's side --------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        return self._head is None

    def take_notice(self) -> str:
        """What is to be said of the last move, once."""
        with self._lock:
            notice, self._notice = self._notice, ""
        return notice

    def scrub(self, by_s: float, from_s: float | None) -> str:
        """Move by ``by_s``; from live (as of ``from_s``) only back. What is to be said of it."""
        if self._head is None:
            if by_s > 0:
                return "this is live: there is nothing later"
            if not self.can_go_back:
                return NO_PAST
            if from_s is None:
                return "nothing was seen of the run yet"
        now_t_s = self._clock()
        with self._lock:
            if self._head is None:
                assert from_s is not None
                self._head = Playhead(from_s + by_s, now_t_s)
            else:
                self._head = self._head.moved(by_s, now_t_s)
        self.on_change()
        return ""

    def jump(self, direction: int, from_s: float | None) -> str:
        """Go to the incident after (1) or before (-1)."""
        if self._head is None:
            said = self.scrub(0.0, from_s) if direction < 0 else "this is live: nothing later"
            if said:
                return said
        with self._lock:
            self._jump = direction
        self.on_change()
        return ""

    def toggle(self) -> None:
        """Play or pause; nothing while live."""
        with self._lock:
            if self._head is not None:
                self._head = self._head.toggled(self._clock())
        self.on_change()

    def pace(self, steps: int) -> str:
        """Play faster or slower."""
        if self._head is None:
            return "the live view has one speed; [ goes back in time"
        with self._lock:
            self._head = self._head.paced(steps, self._clock())
        self.on_change()
        return f"speed ×{self._head.speed:g}"

    def to_end(self) -> None:
        """Back to live; of a recording alone to its end."""
        with self._lock:
            if self.has_live:
                self._head = None
            elif self._head is not None:
                self._head = self._head.put(float("inf"), self._clock())
            self._jump = 0
        self.on_change()

    # --- the feed's side ----------------------------------------------------------------------

    def wants_past(self) -> bool:
        return self._head is not None

    def where(self, recording: Recording) -> Past | None:
        """The moment to show of ``recording``; None when one has gone back to live meanwhile."""
        now_t_s = self._clock()
        with self._lock:
            head = self._head
            if head is None:
                return None
            if self._begin is not None:
                head = self._begun(self._begin, recording, now_t_s)
                self._begin = None
            if self._jump:
                head = self._jumped(head, self._jump, recording, now_t_s)
                self._jump = 0
            head = self._head = head.kept_to(recording, now_t_s)
        return Past(
            at_s=head.position_s(now_t_s),
            first_s=recording.first_s,
            last_s=recording.last_s,
            growing=recording.growing,
            playing=head.playing,
            speed=head.speed,
            moments=tuple(recording.moments),
        )

    def fail(self, why: str) -> bool:
        """There is no recording to be had; True when there is a live view to go back to."""
        with self._lock:
            self._notice = why
            if self.has_live:
                self._head = None
            return self.has_live

    def _begun(self, begin: str | float, recording: Recording, now_t_s: float) -> Playhead:
        head = Playhead(recording.first_s, now_t_s, playing=begin == "start", speed=self._speed)
        if begin == "end":
            return head.put(recording.last_s, now_t_s)
        if begin == "incident":
            seen = [each for each in recording.moments if each.at_s >= recording.first_s]
            first_s = next_moment_s(seen, recording.first_s - 1.0, 1)
            if first_s is None:
                self._notice = "no incident in this recording"
                return head
            return head.put(first_s, now_t_s)
        if isinstance(begin, float):
            at_s = begin if begin > recording.first_s / 2 else recording.first_s + begin
            return head.put(at_s, now_t_s)
        return head

    def _jumped(
        self, head: Playhead, direction: int, recording: Recording, now_t_s: float
    ) -> Playhead:
        seen: list[Moment] = [m for m in recording.moments if m.at_s >= recording.first_s]
        at_s = next_moment_s(seen, head.position_s(now_t_s), direction)
        if at_s is None:
            self._notice = f"no incident {'after' if direction > 0 else 'before'} this"
            return head
        return Playhead(at_s, now_t_s, playing=False, speed=head.speed)
