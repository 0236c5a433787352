"""When a hub that died is started again: whoever looks after one asks here. Pure."""

from dataclasses import dataclass

STEADY_S = 5.0
"""A hub that lived this long was killed from outside, and is back at once."""

PAUSES_S = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before the first, second, … start of a hub that dies soon after each. There is no last one: what
keeps it from living (a full disk, memory taken by others) may end while the run goes on."""

WORTH_SAYING = 5
"""After so many deaths in a row the user is told, once."""


@dataclass
class RestartPolicy:
    in_a_row: int = 0
    """Deaths of hubs that had not lived long, the newest ones."""

    def died(self, lived_s: float) -> float:
        """Seconds to wait before the next start, after a hub that lived for ``lived_s``."""
        self.in_a_row = 1 if lived_s >= STEADY_S else self.in_a_row + 1
        return PAUSES_S[min(self.in_a_row, len(PAUSES_S)) - 1]

    @property
    def failing(self) -> bool:
        """It keeps dying."""
        return self.in_a_row >= WORTH_SAYING

    @property
    def worth_saying(self) -> bool:
        """This death is the one to tell the user of."""
        return self.in_a_row == WORTH_SAYING
