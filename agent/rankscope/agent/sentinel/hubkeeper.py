"""Starting the hub again when it was killed and the run goes on.

Only for a hub that an agent started; ``rankscope run`` looks after its own.
"""

import contextlib
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rankscope.protocol import launch
from rankscope.protocol.exits import UserError
from rankscope.protocol.rundir import RunDirectory, RunInfo, hub_is_alive

POLL_S = 0.25
MAX_TRIES = 5
WINDOW_S = 60.0
FIRST_PAUSE_S = 0.25


@dataclass
class Tries:
    """How often and how soon to try again. Pure: ``now`` is handed in."""

    made: deque[float] = field(default_factory=deque)

    def wait_s(self, now: float) -> float | None:
        """How long to wait before the next try; None when there were too many: give up.

        The first comes at once; each further one within the window waits twice as long.
        """
        while self.made and now - self.made[0] > WINDOW_S:
            self.made.popleft()
        if len(self.made) >= MAX_TRIES:
            return None
        if not self.made:
            return 0.0
        pause_s = FIRST_PAUSE_S * 2 ** (len(self.made) - 1)
        return max(0.0, float(self.made[-1] + pause_s - now))

    def count(self, now: float) -> None:
        self.made.append(now)


class HubKeeper:
    """Looks after the hub of one run directory; :meth:`poll` never waits."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._say = say
        self._tries = Tries()
        self._child: subprocess.Popen[bytes] | None = None
        self._started_t_s = 0.0
        self._given_up = False

    def poll(self, now: float) -> None:
        """Look at the hub, and start one when it is gone though it did not say goodbye."""
        if self._given_up:
            return
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        info = self._read()
        if info is None or info.hub is None or info.ended_s is not None or hub_is_alive(info):
            return
        if self._child is not None:  # started, not yet in run.json
            if now - self._started_t_s > launch.START_TIMEOUT_S:
                self._child.kill()
            return
        wait_s = self._tries.wait_s(now)
        if wait_s is None:
            self._give_up()
        elif wait_s == 0.0:
            self._tries.count(now)
            self._start(now)

    def close(self) -> None:
        """Leave the hub to itself: it outlives its sentinel."""
        if self._child is not None and self._child.poll() is None:
            self._child.returncode = 0  # else its object warns, as it goes, that the hub still runs
        self._child = None

    def _read(self) -> RunInfo | None:
        try:
            return self._directory.read_info()
        except UserError:  # removed, or not ours: nothing to look after
            return None

    def _start(self, now: float) -> None:
        self._started_t_s = now
        try:
            self._child = launch.spawn_hub(self._directory)
        except OSError as error:
            self._say(f"cannot start the hub: {error.strerror}")

    def _give_up(self) -> None:
        self._given_up = True
        text = (
            f"gave up restarting the hub after {MAX_TRIES} tries in {WINDOW_S:.0f} s: "
            f"{launch.last_log_line(self._directory)}"
        )
        self._say(text)
        with contextlib.suppress(OSError), self._directory.log.open("a") as log:
            log.write(f"sentinel: {text}\n")
