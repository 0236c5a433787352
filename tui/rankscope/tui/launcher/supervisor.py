"""Keeps the hub of a run alive: killed, it is back on its endpoint; in a crash loop, slower."""

import signal
import subprocess

from rankscope.protocol import launch
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.procs import is_stopped
from rankscope.protocol.restart import RestartPolicy
from rankscope.protocol.rundir import RunDirectory, RunInfo

AFTER_ORDERLY_END_S = 1.0
"""A hub that found itself idle and ended is started again: its run may yet have more ranks."""


class Supervisor:
    """The hub process of one run. :meth:`poll` is to be called when a child has ended, and every 50
    to 100 ms while it is ``restarting``."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._policy = RestartPolicy()
        self._left = False
        self._hub: subprocess.Popen[bytes] | None = None
        self._since_s: float | None = None
        self._restart_at_s: float | None = None

    @property
    def failing(self) -> bool:
        """There is no hub, and it is not likely to be there soon."""
        return self._policy.failing

    @property
    def restarting(self) -> bool:
        """The hub is gone, and is started again in a moment."""
        return self._restart_at_s is not None

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
        if self._left:
            return None
        if self._since_s is None:
            self._since_s = now_s
        if self._restart_at_s is not None:
            if now_s >= self._restart_at_s:
                self._restart_at_s = None
                self._since_s = now_s
                try:
                    self._hub = launch.spawn_hub(self.directory)
                except OSError as error:  # the directory is gone, or descriptors or memory are
                    self._hub = None
                    return self._died(now_s, f"it cannot be started: {error.strerror}")
            return None
        code = None if self._hub is None else self._hub.poll()
        if code is None:
            return None
        if code == 0:
            self._restart_at_s = now_s + AFTER_ORDERLY_END_S
            return None
        return self._died(now_s, launch.last_log_line(self.directory))

    def _died(self, now_s: float, why: str) -> str | None:
        self._restart_at_s = now_s + self._policy.died(self._lived_s(now_s))
        if self._policy.worth_saying:
            return (
                f"the hub keeps dying ({why}); your command goes on unwatched until a hub stays "
                f"up, see {self.directory.log}"
            )
        return None

    def _lived_s(self, now_s: float) -> float:
        """How long the hub that is gone had lived; 0 where it never served, slow as it may be."""
        try:
            served = self.directory.read_info().hub
        except UserError:
            return 0.0
        if self._since_s is None or self._hub is None or served is None:
            return 0.0
        return now_s - self._since_s if served.pid == self._hub.pid else 0.0

    def let_go(self) -> None:
        """Watch no more: the run is over and the hub ends by itself when nobody asks."""
        self._left = True

    def wake(self) -> None:
        """Let the hub go on where somebody has stopped it: there is something it must hear."""
        wake(self._hub)

    def end(self) -> None:
        """End the hub at once."""
        self._left = True
        if self._hub is not None and self._hub.poll() is None:
            self._hub.terminate()
            self.wake()
            try:
                self._hub.wait(3.0)
            except subprocess.TimeoutExpired:
                self._hub.kill()
                self._hub.wait()


def wake(process: "subprocess.Popen[bytes] | None") -> None:
    """Let ``process`` go on if it is stopped: it would hear of no end, and never end itself."""
    if process is not None and process.poll() is None and is_stopped(process.pid):
        process.send_signal(signal.SIGCONT)
