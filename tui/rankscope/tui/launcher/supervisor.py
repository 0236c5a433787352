"""Keeps the hub of a run alive: killed, it is back on its endpoint; in a crash loop, it is let be.

Decisions are :class:`RestartPolicy`'s, a pure function of times; :class:`Supervisor` owns the
process.
"""

import subprocess
from dataclasses import dataclass, field

from rankscope.protocol import launch
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.rundir import RunDirectory, RunInfo

MAX_DEATHS = 5
WINDOW_S = 30.0
"""A hub that dies more often than ``MAX_DEATHS`` times within this is given up."""
DELAYS_S = (0.0, 0.1, 0.25, 0.5, 1.0)
"""Wait before the first, second, … restart within the window."""
AFTER_ORDERLY_END_S = 1.0
"""A hub that found itself idle and ended is started again: its run may yet have more ranks."""


@dataclass
class RestartPolicy:
    """When to start the hub again. Times are any one monotonic clock's."""

    deaths: list[float] = field(default_factory=list)

    def died(self, now_s: float, exit_code: int) -> float | None:
        """The time at which to restart a hub that ended with ``exit_code``; None: give up."""
        if exit_code == 0:
            return now_s + AFTER_ORDERLY_END_S
        self.deaths = [at_s for at_s in self.deaths if now_s - at_s < WINDOW_S] + [now_s]
        if len(self.deaths) > MAX_DEATHS:
            return None
        return now_s + DELAYS_S[min(len(self.deaths), len(DELAYS_S)) - 1]


class Supervisor:
    """The hub process of one run. :meth:`poll` is to be called every 50 to 100 ms."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.given_up = False
        self._policy = RestartPolicy()
        self._hub: subprocess.Popen[bytes] | None = None
        self._restart_at_s: float | None = None

    def start(self, *, bind: str | None = None, port: int | None = None) -> RunInfo:
        """Start the hub and wait until it serves. Raises :class:`UserError` when it cannot."""
        self._hub = launch.spawn_hub(self.directory, bind=bind, port=port)
        try:
            return launch.wait_for_hub(self.directory, self._hub)
        except UserError as error:
            raise UserError(str(error).replace("rankscope: ", ""), Exit.USAGE) from None
        except BaseException:
            self.end()
            raise

    def poll(self, now_s: float) -> str | None:
        """Restart the hub when that is due; what to tell the user, if anything."""
        if self.given_up:
            return None
        if self._restart_at_s is not None:
            if now_s >= self._restart_at_s:
                self._restart_at_s = None
                self._hub = launch.spawn_hub(self.directory)
            return None
        code = None if self._hub is None else self._hub.poll()
        if code is None:
            return None
        self._restart_at_s = self._policy.died(now_s, code)
        if self._restart_at_s is None:
            self.given_up = True
            return (
                f"the hub keeps dying ({launch.last_log_line(self.directory)}); your command "
                f"goes on unwatched, see {self.directory.log}"
            )
        return None

    def let_go(self) -> None:
        """Watch no more: the run is over and the hub ends by itself when nobody asks."""
        self.given_up = True

    def end(self) -> None:
        """End the hub at once."""
        self.given_up = True
        if self._hub is not None and self._hub.poll() is None:
            self._hub.terminate()
            try:
                self._hub.wait(3.0)
            except subprocess.TimeoutExpired:
                self._hub.kill()
                self._hub.wait()
