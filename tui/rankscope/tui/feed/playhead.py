"""Where in a recording one is, and how one moves there. Pure; clocks are arguments.

``at_s`` and the like are times of the hub that recorded (Unix time), ``…_t_s`` the local monotonic
clock, which only tells how far a recording has been played since.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankscope.protocol.shapes import Moment, Recording

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
BEHIND_S = 0.5
"""A jump leads a moment behind what happened: its finding is open there, and what led to it is a
scrub away. Two moments nearer than that are one."""


@dataclass(frozen=True)
class Playhead:
    """A place in a recording that moves by itself while it is played."""

    at_s: float
    since_t_s: float
    """When it was there."""
    playing: bool = False
    speed: float = 1.0

    def position_s(self, now_t_s: float) -> float:
        if not self.playing:
            return self.at_s
        return self.at_s + self.speed * max(0.0, now_t_s - self.since_t_s)

    def put(self, at_s: float, now_t_s: float) -> "Playhead":
        """The same, elsewhere."""
        return replace(self, at_s=at_s, since_t_s=now_t_s)

    def moved(self, by_s: float, now_t_s: float) -> "Playhead":
        return self.put(self.position_s(now_t_s) + by_s, now_t_s)

    def toggled(self, now_t_s: float) -> "Playhead":
        """Played when it stood, standing when it was played."""
        return replace(self.put(self.position_s(now_t_s), now_t_s), playing=not self.playing)

    def paced(self, steps: int, now_t_s: float) -> "Playhead":
        """Faster (``steps`` 1) or slower (-1)."""
        at = min(range(len(SPEEDS)), key=lambda index: abs(SPEEDS[index] - self.speed))
        speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at + steps))]
        return replace(self.put(self.position_s(now_t_s), now_t_s), speed=speed)

    def kept_to(self, recording: Recording, now_t_s: float) -> "Playhead":
        """Brought between the ends of ``recording``. At the end of one that does not grow it stops,
        and of one that grows it goes on as fast as the run does."""
        at_s = self.position_s(now_t_s)
        if at_s < recording.first_s:
            return self.put(recording.first_s, now_t_s)
        if at_s < recording.last_s:
            return self
        ended = self.playing and not recording.growing
        return replace(
            self.put(recording.last_s, now_t_s), playing=self.playing and not ended
        )  # fmt: skip


@dataclass(frozen=True)
class Past:
    """That a picture is of the past, and of when."""

    at_s: float
    first_s: float
    last_s: float
    growing: bool
    playing: bool
    speed: float
    moments: tuple[Moment, ...] = ()
    """What happened, oldest first."""


def next_moment_s(moments: Sequence[Moment], at_s: float, direction: int) -> float | None:
    """Where a jump from ``at_s`` leads: behind (1) or before (-1) it, to what was grave.

    Notices are passed over, unless there is nothing else. None when there is nothing there.
    """
    grave = [moment for moment in moments if moment.severity != "info"] or list(moments)
    times = sorted({moment.at_s + BEHIND_S for moment in grave})
    if direction > 0:
        return next((time_s for time_s in times if time_s > at_s + 0.01), None)
    return next((time_s for time_s in reversed(times) if time_s < at_s - BEHIND_S), None)
