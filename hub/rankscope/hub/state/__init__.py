"""What the hub knows of a run: columns of per-rank numbers, changed by messages alone.

``RunState.apply(message, received_s)`` is pure in its arguments and the state: the same messages at
the same times give the same state, which is why a recording can stand in for the network.
"""

from rankscope.hub.state.run import RunState

__all__ = ["RunState"]
