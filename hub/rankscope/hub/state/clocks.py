"""Placing a sender's monotonic times on the hub's clock."""

import math
from collections.abc import Mapping
from typing import ClassVar

from rankscope.hub.state.columns import FLOAT, Columns, Field, Floats

DRIFT_PER_S = 5e-5
"""How fast two honest monotonic clocks may part: the floor creeps up by this much."""

MAX_AGE_S = 1e8
"""No event of a run is older (three years)."""


class Clocks(Columns):
    """For each sender: hub clock minus its clock.

    ``offset_s`` is the sender's own estimate by request and reply. ``floor_s`` is the smallest
    ``received − t_s`` seen, which is that offset plus the quickest delivery: the second best. A
    delay in delivery (a hub that was away, a full queue) moves neither.
    """

    FIELDS: ClassVar[Mapping[str, Field]] = {
        "offset_s": FLOAT,
        "error_s": FLOAT,
        "floor_s": FLOAT,
        "floor_at_s": FLOAT,
    }
    offset_s: Floats
    error_s: Floats
    floor_s: Floats
    floor_at_s: Floats

    def heard(self, sender: int, t_s: float, received_s: float) -> None:
        """A message that was sent at ``t_s`` (the sender's clock) came at ``received_s``."""
        cells = self.cells
        delay_s = received_s - t_s
        floor_s = cells.floor_s[sender]
        if math.isnan(floor_s):
            cells.floor_s[sender] = delay_s
        else:
            crept_s = floor_s + DRIFT_PER_S * max(0.0, received_s - cells.floor_at_s[sender])
            cells.floor_s[sender] = min(delay_s, crept_s)
        cells.floor_at_s[sender] = received_s

    def estimated(self, sender: int, offset_s: float, error_s: float | None) -> None:
        """The sender has an estimate of its own."""
        cells = self.cells
        cells.offset_s[sender] = offset_s
        cells.error_s[sender] = math.nan if error_s is None else error_s

    def place(self, sender: int, event_t_s: float, received_s: float) -> float:
        """When the event at ``event_t_s`` was, on the hub's clock; never after its receipt."""
        cells = self.cells
        offset_s: float = cells.offset_s[sender]
        if math.isnan(offset_s):
            offset_s = cells.floor_s[sender]
        placed_s = event_t_s + offset_s
        # Also catches NaN and infinities: a sender never heard, or a time that cannot be.
        return placed_s if received_s - MAX_AGE_S < placed_s <= received_s else received_s
