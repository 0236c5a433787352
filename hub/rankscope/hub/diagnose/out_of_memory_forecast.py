"""``out-of-memory-forecast``: ranks that will soon have used up what they may use.

Either the memory grows so fast that what is left lasts only some steps more, or nearly all of it
was used up within the steps that are remembered, also if nothing is taken at this moment.
"""

from typing import NamedTuple

import numpy as np

from rankscope.hub.diagnose.growth import Growths
from rankscope.hub.diagnose.text import ranks_text, size_text
from rankscope.hub.memorylimits import Room, rooms
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

SOON_STEPS = 120
SOON_S = 20.0
"""It is forecast when it will be full within so many steps, or within this time."""

NEARLY_SHARE = 0.1
"""What is left, of what was left before: so little, and it is nearly full."""

LEAST_TAKEN_BYTES = 64 << 20
MAX_EVIDENCE = 6
MAX_RANKS = 256
"""Limits are looked at of so many ranks that grow; all others of a fleet grow as they do."""


class Forecast(NamedTuple):
    rank: int
    room: Room
    full_at_step: int | None
    """None: not growing at the moment."""


def forecasts(state: RunState, found: Growths) -> list[Forecast]:
    """What will soon be full, by rank."""
    soon = []
    hosts = state.ranks.host[: len(found.slopes)]
    # What all ranks of a node take together; -1 is no host.
    together = np.bincount(hosts + 1, weights=found.slopes)
    for growth in found.steepest(MAX_RANKS):
        for room in rooms(state, growth.rank):
            slope = growth.bytes_per_step
            if room.shared:
                slope = together.item(state.ranks.host.item(growth.rank) + 1)
            steps = room.left_bytes / slope
            step_s = state.ranks.step_s.item(growth.rank)
            if steps <= SOON_STEPS or steps * step_s <= SOON_S:
                soon.append(Forecast(growth.rank, room, growth.to_step + int(steps)))
                break
    told = {forecast.rank for forecast in soon}
    soon += [one for one in _nearly_full(state) if one.rank not in told]
    return sorted(soon, key=lambda forecast: forecast.rank)


def _nearly_full(state: RunState) -> list[Forecast]:
    """Ranks with a limit of their own of which little is left, and lately there was much."""
    history = state.memory
    size = min(state.size(), len(history.at))
    least = np.fmin(
        np.fmin.reduce(history.bytes[:size], axis=1),
        np.fmin.reduce(history.spans[:size], axis=1),
    )
    taken = history.last_bytes(size) - least
    found = []
    for rank in np.flatnonzero(taken >= LEAST_TAKEN_BYTES).tolist()[:MAX_RANKS]:
        for room in rooms(state, rank):
            before = room.left_bytes + taken[rank]
            if not room.shared and room.left_bytes <= NEARLY_SHARE * before:
                found.append(Forecast(rank, room, None))
                break
    return found


def out_of_memory_forecast(soon: list[Forecast]) -> list[Finding]:
    """One finding for all ranks, with the first that will be full in front."""
    if not soon:
        return []
    ranks = [forecast.rank for forecast in soon]
    first = min(soon, key=lambda one: (one.full_at_step is None, one.full_at_step or 0))
    left = f"{size_text(first.room.left_bytes)} of {first.room.what} left"
    when = "" if first.full_at_step is None else f", at about step {first.full_at_step}"
    return [
        Finding(
            kind="out-of-memory-forecast",
            severity="critical",
            ranks=ranks,
            victims=[],
            step=None,  # it lasts: one incident, not one a step
            since_s=0.0,
            headline=f"{ranks_text(ranks)} will run out of memory{when}: {left}",
            evidence=[_told(forecast) for forecast in soon[:MAX_EVIDENCE]],
            next="see who takes it: rankscope memory; a smaller batch or accumulation takes less",
        )
    ]


def _told(forecast: Forecast) -> str:
    room = forecast.room
    of = "" if room.limit_bytes is None else f" of {size_text(room.limit_bytes)}"
    told = f"rank {forecast.rank}: {size_text(room.left_bytes)}{of} {room.what} left"
    if forecast.full_at_step is None:
        return f"{told}, and it has taken most of what was left before"
    return f"{told}, full at about step {forecast.full_at_step} if it goes on growing"
