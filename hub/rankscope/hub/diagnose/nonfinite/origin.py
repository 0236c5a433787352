"""Where a number that is not finite came from: the first bad stage on the first rank. Pure.

The order is causality's: a parameter that was bad before the step explains what its rank computes
(and, where parameters are sharded, what every rank computes); then microbatch by microbatch the
input, the modules, the loss, the gradient and its cast on each rank, which nothing of another rank
can reach; then the reduction, which carries it to all; then the update.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope.hub.state.numerics.episodes import RankSigns
from rankscope.protocol.messages import Sign, Stage

CONSEQUENCE = "so was its gradient"
"""How a rank notes a bad parameter after an update with a bad gradient."""

OWN = (Stage.INPUT, Stage.FORWARD, Stage.LOSS, Stage.GRADIENT, Stage.CAST)
"""Stages that only this rank's own numbers reach, but for its parameters."""

BEFORE_REDUCTION = sum(1 << stage for stage in (*OWN, Stage.PARAMETER))
"""Bits of the stages that no other rank's gradient has reached yet."""

KINDS = {
    Stage.INPUT: "nonfinite-input",
    Stage.PARAMETER: "nonfinite-parameter",
    Stage.FORWARD: "nonfinite-forward",
    Stage.LOSS: "nonfinite-loss",
    Stage.GRADIENT: "nonfinite-gradient",
    Stage.CAST: "nonfinite-cast",
    Stage.REDUCED: "nonfinite-reduction",
    Stage.OPTIMIZER: "nonfinite-optimizer",
    Stage.UPDATED: "nonfinite-optimizer",
}


@dataclass(frozen=True)
class Origin:
    """One kind of beginning, on one or several ranks. ``signs`` is the first one of each."""

    kind: str
    stage: Stage
    ranks: list[int]
    """Whom to name; empty when nobody is to blame."""
    signs: dict[int, Sign]
    steps_back: int = 0
    """How many steps before the one in which it was seen it must have happened."""
    unseen: list[int] = field(default_factory=list)
    """Ranks whose own gradients were not all looked at, where that leaves the origin open."""
    finite_others: int = 0
    """How many other ranks there are, where their own were all looked at and finite; else 0."""

    @property
    def only(self) -> int | None:
        """The one rank that is left, where what all others had of their own was finite."""
        return self.unseen[0] if len(self.unseen) == 1 and self.finite_others else None


def origins(here: Mapping[int, RankSigns], norms: Mapping[int, float], world: int) -> list[Origin]:
    """Where it began, from what each rank saw in the first bad step.

    ``norms`` are the ranks' own gradient norms in that step, where told; ``world`` is how many
    ranks there are.
    """
    began: dict[str, dict[int, Sign]] = {}
    first = {rank: seen for rank, seen in here.items() if seen.bad & BEFORE_REDUCTION}
    from_state = {rank: sign for rank, seen in first.items() if (sign := _spoilt_by_state(seen))}
    parameters = {
        rank: sign
        for rank, seen in first.items()
        if rank not in from_state and (sign := seen.first(Stage.PARAMETER))
    }
    if from_state:
        return [Origin(KINDS[Stage.OPTIMIZER], Stage.OPTIMIZER, sorted(from_state), from_state, 1)]
    own = {
        rank: sign
        for rank, seen in first.items()
        if rank not in parameters and (sign := _first_own(seen))
    }
    if parameters:  # whoever gathers that shard computes with it, too: only an input is his own
        own = {rank: sign for rank, sign in own.items() if sign.stage == Stage.INPUT}
    for rank, sign in {**parameters, **_uninfected(own)}.items():
        began.setdefault(KINDS[sign.stage], {})[rank] = sign
    if began:
        return sorted((_origin(signs) for signs in began.values()), key=_when)
    return _after_reduction(here, norms, world)


def _origin(signs: dict[int, Sign]) -> Origin:
    stage = signs[min(signs)].stage
    return Origin(KINDS[stage], stage, sorted(signs), signs)


def _when(origin: Origin) -> tuple[int, float, int]:
    return min(_key(sign) for sign in origin.signs.values())


def _key(sign: Sign) -> tuple[int, float, int]:
    """The order within a step: parameters, then by microbatch (those of none last) and stage."""
    return (sign.stage != Stage.PARAMETER, sign.microbatch or math.inf, sign.stage)


def _first_own(seen: RankSigns) -> Sign | None:
    """The rank's first sign at a stage of its own; of equal ones the one it told first."""
    found = [sign for sign in seen.signs if sign.stage in OWN]
    return min(found, key=_key) if found else None


def _uninfected(own: dict[int, Sign]) -> dict[int, Sign]:
    """Without ranks that began in a later microbatch than the first.

    A loop that reduces after each microbatch has the others' gradients in its own from then on. An
    input is nobody else's doing.
    """
    first = min((sign.microbatch for sign in own.values() if sign.microbatch), default=0)
    return {
        rank: sign
        for rank, sign in own.items()
        if sign.microbatch in (0, first) or sign.stage == Stage.INPUT
    }


def _spoilt_by_state(seen: RankSigns) -> Sign | None:
    """Of an optimizer's state that had spoilt its parameter before the step began: an update must
    have done that, for a bad parameter reaches the state only by the next one."""
    bad = {sign.name for sign in seen.at(Stage.PARAMETER)}
    return next((sign for sign in seen.at(Stage.OPTIMIZER) if sign.name in bad), None)


def _late(seen: RankSigns, stage: Stage) -> Sign | None:
    """The rank's first sign of a stage after its own; a bad update with a bad gradient tells of
    the reduced gradient."""
    for sign in seen.signs:
        spoilt = sign.stage == Stage.UPDATED and CONSEQUENCE in sign.note
        if (Stage.REDUCED if spoilt else sign.stage) == stage:
            return sign
    return None


def _whole(seen: RankSigns | None, norms: Mapping[int, float], rank: int) -> bool:
    """Whether all of the rank's own gradients were looked at and finite. A norm alone does not say
    so: a rank that leaves large ones out tells of one that is odd among those that it reads."""
    if seen is not None:
        return seen.looked_at(Stage.GRADIENT)
    return math.isfinite(norms.get(rank, math.nan))


def _after_reduction(
    here: Mapping[int, RankSigns], norms: Mapping[int, float], world: int
) -> list[Origin]:
    """No rank's own numbers were bad: the reduction or the update made it."""
    unseen = [
        rank
        for rank in range(world)
        if not math.isfinite(norms.get(rank, math.nan))
        and not (rank in here and here[rank].looked_at(Stage.GRADIENT))
    ]
    for stage in (Stage.REDUCED, Stage.OPTIMIZER, Stage.UPDATED):
        signs = {rank: sign for rank, seen in here.items() if (sign := _late(seen, stage))}
        if not signs:
            continue
        others = [rank for rank in range(world) if rank not in unseen]
        whole = all(_whole(here.get(rank), norms, rank) for rank in others)
        nobody = stage == Stage.REDUCED or (stage == Stage.UPDATED and len(signs) > 1 and unseen)
        return [
            Origin(
                KINDS[stage],
                stage,
                [] if nobody else sorted(signs),
                signs,
                unseen=unseen if stage != Stage.OPTIMIZER else [],
                finite_others=len(others) if whole else 0,
            )
        ]
    return []
