"""What the process of a hub that does not answer does, where it is one of this machine."""

from rankscope.protocol.procs import is_alive, is_stopped
from rankscope.protocol.rundir import HubProcess


def words(hub: HubProcess | None) -> str:
    """That it is stopped, or busy, and what helps; empty for one that is not there or not known."""
    if hub is None or not is_alive(hub.pid, hub.start_time_s):
        return ""
    if is_stopped(hub.pid):
        return f"its process {hub.pid} is stopped; let it go on: kill -CONT {hub.pid}"
    return f"its process {hub.pid} runs and is busy, or the machine is; its hub.log may tell"
