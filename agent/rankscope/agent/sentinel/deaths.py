"""Deaths that were seen, and whether the hub has been told. No protocol message confirms one, so
all are told again whenever the hub may have forgotten: it takes them idempotently."""

from collections import deque
from collections.abc import Callable

from rankscope.agent.sentinel.report import Death

MAX_KEPT = 1024


class Deaths:
    """In the order in which they happened; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._all: deque[Death] = deque(maxlen=MAX_KEPT)
        self._untold = 0
        """So many at the end have not been sent to this hub."""

    def add(self, death: Death) -> None:
        self._all.append(death)
        self._untold = min(self._untold + 1, len(self._all))

    def tell_all_again(self) -> None:
        """The hub may be a new one, or may have lost what was on its way."""
        self._untold = len(self._all)

    def tell(self, send: Callable[[Death], bool]) -> None:
        """Send what is untold, oldest first, until ``send`` says that it did not go."""
        while self._untold and send(self._all[-self._untold]):
            self._untold -= 1

    @property
    def untold(self) -> int:
        return self._untold
