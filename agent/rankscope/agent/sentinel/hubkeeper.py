"""Starting the hub again when it was killed and the run goes on.

Only for a hub that an agent started; ``rankscope run`` looks after its own.
"""

import contextlib
import math
import subprocess
from collections.abc import Callable

from rankscope.protocol import launch
from rankscope.protocol.exits import UserError
from rankscope.protocol.restart import RestartPolicy
from rankscope.protocol.rundir import RunDirectory, RunInfo, hub_is_alive

POLL_S = 0.25


class HubKeeper:
    """Looks after the hub of one run directory; :meth:`poll` never waits."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._say = say
        self._policy = RestartPolicy()
        self._child: subprocess.Popen[bytes] | None = None
        self._started_t_s = -math.inf
        self._pid: int | None = None  # of the hub that was started last
        self._restart_t_s: float | None = None

    def poll(self, now: float) -> None:
        """Look at the hub, and start one when it is gone though it did not say goodbye."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        info = self._read()
        if info is None or info.hub is None or info.ended_s is not None or hub_is_alive(info):
            return
        if self._child is not None:  # started, not yet in run.json
            if now - self._started_t_s > launch.START_TIMEOUT_S:
                self._child.kill()
            return
        if self._restart_t_s is None:
            self._restart_t_s = now + self._policy.died(self._lived_s(info, now))
            if self._policy.worth_saying:
                self._tell_of_failing()
        if now >= self._restart_t_s:
            self._restart_t_s = None
            self._start(now)

    def close(self) -> None:
        """Leave the hub to itself: it outlives its sentinel."""
        if self._child is not None and self._child.poll() is None:
            self._child.returncode = 0  # else its object warns, as it goes, that the hub still runs
        self._child = None

    def _lived_s(self, info: RunInfo, now: float) -> float:
        """How long the hub that is gone had lived; 0 where it never served, slow as it may be."""
        served = self._pid is None or (info.hub is not None and info.hub.pid == self._pid)
        return now - self._started_t_s if served else 0.0

    def _read(self) -> RunInfo | None:
        try:
            return self._directory.read_info()
        except UserError:  # removed, or not ours: nothing to look after
            return None

    def _start(self, now: float) -> None:
        self._started_t_s = now
        try:
            self._child = launch.spawn_hub(self._directory)
            self._pid = self._child.pid
        except OSError as error:
            self._say(f"cannot start the hub: {error.strerror}")

    def _tell_of_failing(self) -> None:
        text = f"the hub keeps dying: {launch.last_log_line(self._directory)}"
        self._say(text)
        with contextlib.suppress(OSError), self._directory.log.open("a") as log:
            log.write(f"sentinel: {text}\n")
