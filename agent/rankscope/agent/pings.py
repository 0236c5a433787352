"""When the hub's clock is asked, and what it has answered. Pure; the sending thread's own."""

from collections import deque

from rankscope.agent.clock import offset
from rankscope.agent.clock.offset import Exchange
from rankscope.protocol.messages import Pong

EVERY_S = (0.5, 5.0)
"""The hub's clock is asked this often: at first, and once there are a few answers."""


class Pings:
    """Only the answer to the last ping counts."""

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque(maxlen=offset.KEPT)
        self._last_s = -1e9
        self._open_s: float | None = None

    def due(self, now: float) -> bool:
        often = len(self._exchanges) < offset.KEPT // 2
        return now - self._last_s >= EVERY_S[0 if often else 1]

    def sent(self, t_s: float) -> None:
        """A ping that carries ``t_s`` has left."""
        self._last_s = self._open_s = t_s

    def heard(self, pong: Pong, now: float) -> None:
        if pong.t_s == self._open_s:
            self._open_s = None
            self._exchanges.append(Exchange(pong.t_s, pong.hub_s, now))

    @property
    def unanswered(self) -> bool:
        return self._open_s is not None

    def best(self) -> offset.Offset | None:
        """The hub's clock against this process's; None before the first answer."""
        return offset.estimate(self._exchanges)
