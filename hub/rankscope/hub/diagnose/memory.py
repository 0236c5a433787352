"""The memory kinds together: what grows is looked for once, and a rank is told of once."""

from rankscope.hub.diagnose.growth import growths
from rankscope.hub.diagnose.memory_growth import memory_growth
from rankscope.hub.diagnose.out_of_memory_forecast import forecasts, out_of_memory_forecast
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding


def memory(state: RunState, now_s: float) -> list[Finding]:
    """Ranks that will run out of memory, and others whose memory grows."""
    found = growths(state)
    soon = forecasts(state, found)
    others = found.without(forecast.rank for forecast in soon)
    return [*out_of_memory_forecast(soon), *memory_growth(state, others)]
