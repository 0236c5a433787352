"""Norms of single parameters, as ranks tell them now and then."""

from typing import Any

import msgspec

from rankscope.hub.state.columns import MAX_SIZE
from rankscope.protocol import messages as m

MAX_RANKS = 64
"""Ranks of which they are kept; who told first goes first."""

MAX_STEPS = 3
MAX_CHARS = 256


class StepNorms(msgspec.Struct):
    """One step's gradients, parameter by parameter, in the model's order."""

    step: int
    norms: list[m.ParameterNorm]
    left_out: int = 0


class Parameters:
    """The newest steps of those ranks that told."""

    def __init__(self) -> None:
        self.ranks: dict[int, list[StepNorms]] = {}

    def take(self, message: m.ParameterNorms) -> None:
        known = self.ranks.pop(message.rank, [])
        norms = [
            norm
            if len(norm.name) <= MAX_CHARS
            else msgspec.structs.replace(norm, name=norm.name[:MAX_CHARS])
            for norm in message.norms
        ]
        known = [one for one in known if one.step != message.step]
        known.append(StepNorms(message.step, norms, message.left_out))
        known.sort(key=lambda one: one.step)
        self.ranks[message.rank] = known[-MAX_STEPS:]
        while len(self.ranks) > MAX_RANKS:
            del self.ranks[next(iter(self.ranks))]

    def at(self, rank: int, step: int) -> StepNorms | None:
        return next((one for one in self.ranks.get(rank, ()) if one.step == step), None)

    def newest(self, rank: int) -> StepNorms | None:
        known = self.ranks.get(rank)
        return known[-1] if known else None

    def grown(self, rank: int, step: int) -> tuple[str, float] | None:
        """The parameter that made the gradient of ``step`` large, and its norm.

        Against another step of the same rank where there is one, else the one that makes up most
        of the square. None when nothing is known or no parameter stands out.
        """
        told = self.at(rank, step)
        if told is None:
            return None
        now = {one.name: one.local_norm for one in told.norms if one.local_norm}
        if not now:
            return None
        for other in self.ranks[rank]:
            if other.step == step:
                continue
            usual = {one.name: one.local_norm for one in other.norms if one.local_norm}
            ratios = {name: norm / usual[name] for name, norm in now.items() if name in usual}
            if ratios:
                name = max(ratios, key=ratios.__getitem__)
                return name, now[name]
        name = max(now, key=now.__getitem__)
        square = sum(min(norm, 1e150) ** 2 for norm in now.values())
        return (name, now[name]) if min(now[name], 1e150) ** 2 >= 0.5 * square else None

    def forget(self, rank: int) -> None:
        self.ranks.pop(rank, None)

    def dump(self) -> Any:
        return msgspec.to_builtins(self.ranks, str_keys=False)

    def load(self, saved: Any) -> None:
        self.ranks = msgspec.convert(saved, dict[int, list[StepNorms]])
        if any(rank >= MAX_SIZE for rank in self.ranks):
            raise ValueError("norms of a rank beyond all")
