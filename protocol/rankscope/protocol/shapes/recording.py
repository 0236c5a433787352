"""What there is to go back to in a recording."""

from rankscope.protocol.shapes.base import Severity, Shape


class Moment(Shape):
    """When a finding opened."""

    at_s: float
    """Hub clock (Unix time)."""
    severity: Severity
    kind: str
    headline: str


class Recording(Shape):
    """What there is to go back to. Only a hub that serves a recording has this view."""

    first_s: float
    """The time of its first record, hub clock: what was before has been dropped."""
    last_s: float
    growing: bool
    """The run goes on."""
    moments: list[Moment] = []
    """Of the incident log, oldest first; they may be older than ``first_s``."""
