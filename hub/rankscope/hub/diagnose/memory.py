"""The memory kinds together: what grows is looked for once, and a rank is told of once."""

from rankscope.hub.diagnose.growth import growths
from rankscope.hub.diagnose.memory_fragmentation import fragmented, memory_fragmentation
from rankscope.hub.diagnose.memory_growth import memory_growth
from rankscope.hub.diagnose.memory_over_budget import memory_over_budget, over_budget
from rankscope.hub.diagnose.out_of_memory_forecast import forecasts, out_of_memory_forecast
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

EVERY_S = 1.0
"""What changes slowly is looked at no more often: thousands of ranks tell it in words."""


def memory(state: RunState, now_s: float) -> list[Finding]:
    """Ranks that will run out of memory, others whose memory grows, and how what is taken is
    used."""
    found = growths(state)
    soon = forecasts(state, found)
    others = found.without(forecast.rank for forecast in soon)
    in_pieces, too_much = _slow(state, now_s)
    return [
        *out_of_memory_forecast(soon),
        *memory_growth(state, others),
        *memory_over_budget(state, too_much),
        *memory_fragmentation(state, in_pieces),
    ]


def _slow(state: RunState, now_s: float) -> tuple[list[int], list[int]]:
    """Ranks whose memory is fragmented, and ranks that are over their budget."""
    known = state.progress.derived.get("memory")
    if known is not None and 0 <= now_s - known[0] < EVERY_S:
        in_pieces, too_much = known[1]
        known_of = state.words.memory  # a rank may have begun anew since
        return [r for r in in_pieces if r in known_of], [r for r in too_much if r in known_of]
    found = fragmented(state), over_budget(state)
    state.progress.derived["memory"] = (now_s, found)
    return found
