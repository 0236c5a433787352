"""Time in which no hub looked, for the incident log: it was stopped, or is another one."""

import time

from rankscope.hub.diagnose.text import age_text
from rankscope.protocol.shapes import Finding, Incident


def blind_time(from_s: float, until_s: float, attempt: int) -> list[Incident]:
    """The two entries of such a time (hub clock, Unix time); the same whenever they are made."""
    finding = Finding(
        kind="hub-away",
        severity="info",
        ranks=[],
        victims=[],
        step=None,
        since_s=0.0,
        headline=f"no hub looked from {_clock(from_s)} to {_clock(until_s)} "
        f"({age_text(until_s - from_s)})",
        evidence=[
            "it was stopped, or killed and started again: hub.log says which",
            "training does not need it; of what happened meanwhile there is what ranks and "
            "sentinels have told since",
        ],
        next="",
    )
    # Its end is a tick that the recording has; its beginning may be one that was not worth it.
    id_ = f"{finding.kind}/{round(until_s * 1000)}"
    return [
        Incident(id=id_, event="opened", at_s=from_s, attempt=attempt, finding=finding),
        Incident(id=id_, event="closed", at_s=until_s, attempt=attempt, finding=finding),
    ]


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
