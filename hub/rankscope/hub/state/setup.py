"""What is each rank's own by nature among its facts: the seed, and where its generator stood.

All other facts are the same on most ranks and kept once (``words``).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

OWN_FACTS = frozenset({"seed", "rng"})
"""Facts that should differ from rank to rank."""


class Setup:
    """By rank; a part of the state."""

    def __init__(self) -> None:
        self.own: dict[int, dict[str, str]] = {}
        self.version = 0
        """Counts hellos, so that what was worked out from facts need not be worked out again."""
        self.changed_s = float("-inf")
        """When facts changed last, hub clock."""
        self.derived: tuple[int, Any] | None = None
        """The version of which something was worked out, and that; not saved."""

    def hello(self, rank: int, facts: Mapping[str, str], received_s: float) -> None:
        self.own[rank] = {name: facts[name] for name in OWN_FACTS if name in facts}
        self.version += 1
        self.changed_s = received_s

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        pass

    def forget(self, rank: int) -> None:
        self.own.pop(rank, None)
        self.version += 1

    def forget_all(self) -> None:
        self.own.clear()
        self.version += 1

    def dump(self) -> Any:
        return {"own": self.own, "changed_s": self.changed_s}

    def load(self, saved: Any) -> None:
        self.own = msgspec.convert(saved["own"], dict[int, dict[str, str]])
        self.changed_s = msgspec.convert(saved["changed_s"], float)
        self.version += 1
