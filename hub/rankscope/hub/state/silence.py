"""From when a silence counts: not while its sender could not speak, and not while nobody listened.

``excused_s`` (hub clock) is the newest moment at which such a reason ended: a stopped process went
on, a node that was cut off came back, the hub itself was away.
"""

import numpy as np

from rankscope.hub.state.columns import Floats
from rankscope.hub.state.nodes import Nodes, Sentinel
from rankscope.hub.state.ranks import RankColumns

LOST_S = 5.0
"""Silence that is a finding."""


def since_s(ranks: RankColumns) -> Floats:
    """From when each rank's silence counts, shape (columns,); NaN for ranks never heard."""
    excused: Floats = np.where(
        np.isnan(ranks.excused_s), ranks.heard_s, np.maximum(ranks.heard_s, ranks.excused_s)
    )
    return excused


def sentinel_since_s(sentinel: Sentinel) -> float:
    """From when the sentinel's silence counts."""
    return max(sentinel.heard_s, sentinel.excused_s)


def hub_was_away(ranks: RankColumns, nodes: Nodes, from_s: float, until_s: float) -> None:
    """Give everybody who was not lost yet at ``from_s`` their whole time again."""
    ranks.excused_s[from_s - since_s(ranks) <= LOST_S] = until_s
    for sentinel in nodes.sentinels.values():
        if from_s - sentinel_since_s(sentinel) <= LOST_S:
            sentinel.excused_s = until_s


def node_is_back(ranks: RankColumns, host: int, before: Sentinel, now_s: float) -> None:
    """The sentinel of ``host`` (an index) is heard again; ``before`` is who spoke for it last.

    Ranks that fell silent together with it have their time to come back, too.
    """
    gone_s = sentinel_since_s(before)
    if now_s - gone_s > LOST_S:
        ranks.excused_s[(ranks.host == host) & (since_s(ranks) >= gone_s - LOST_S)] = now_s
