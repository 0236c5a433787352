"""A run whose ranks tell of their numbers, played by hand.

world = NumericWorld(4)
world.clean(10)                                     # ten steps as they should be
world.sees(3, Stage.GRADIENT, "w", microbatch=1)    # in the step in work
world.done()                                        # which all ranks complete
assert world.finding("nonfinite-gradient").ranks == [3]
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage
from rankscope.protocol.shapes import Finding
from support.world import World

EARLY = (Stage.INPUT, Stage.FORWARD, Stage.LOSS)


class NumericWorld(World):
    """Ranks with gradients near 1, data of their own, and updates at every step."""

    def __init__(self, ranks: int = 4, trainer: str = "ddp", **more: Any) -> None:
        super().__init__(ranks, hello=False, **more)
        for host in self.hosts:
            self.node_hello(host)
        for rank in self.ranks:
            self.hello(rank, trainer=trainer)

    @property
    def step_in_work(self) -> int:
        return next(iter(self.ranks.values())).step + 1

    def sees(
        self,
        ranks: int | Iterable[int],
        stage: Stage,
        name: str = "",
        *,
        microbatch: int = 0,
        value: str = "nan",
        looked: Iterable[Stage] = (),
        note: str = "",
        count: int = 1,
        step: int | None = None,
    ) -> Self:
        """Ranks see something that is not finite in the step in work, and say so at once."""
        at = self.step_in_work if step is None else step
        for rank in [ranks] if isinstance(ranks, int) else ranks:
            sign = m.Sign(stage, at, microbatch, name, value, count, 0, note)
            stages = tuple(sorted({stage, *looked}))
            self.from_rank(rank, m.Signs, step=at, signs=(sign,), looked=stages)
        return self

    def done(
        self,
        norms: Mapping[int, float | None] | None = None,
        *,
        updated: Mapping[int, bool | None] | None = None,
        prints: Mapping[int, int | None] | None = None,
        scale: float | None = None,
        loss: float = 2.0,
        ranks: Iterable[int] | None = None,
        step_s: float = 0.2,
        tick: bool = True,
    ) -> Self:
        """These ranks (all that live) complete the step in work."""
        self.now_s += step_s
        for rank in [r for r, s in self.ranks.items() if not s.over] if ranks is None else ranks:
            sim = self.ranks[rank]
            sim.step += 1
            sim.activity += 4
            sim.phase, sim.phase_s = m.Phase.BACKWARD, self.now_s
            wobble = math.exp(0.2 * math.sin(1.3 * sim.step + rank))
            record = m.StepRecord(
                step=sim.step,
                t_s=self.now_s + sim.clock_s,
                step_s=step_s,
                data_s=0.0,
                forward_s=0.3 * step_s,
                backward_s=0.7 * step_s,
                optimizer_s=0.0,
                other_s=0.0,
                microbatches=1,
                loss=loss,
                local_norm=(norms or {}).get(rank, (1 + 0.1 * rank) * wobble),
                updated=(updated or {}).get(rank, True),
                fingerprint=(prints or {}).get(rank, 1_000_003 * sim.step + rank),
                loss_scale=scale,
            )
            self.beat(rank, steps=(record,))
        if tick:
            self.tick()
        return self

    def clean(self, steps: int, **values: Any) -> Self:
        """So many steps in which nothing is wrong."""
        for _ in range(steps):
            self.done(**values)
        return self

    def checks(
        self,
        totals: Mapping[int, int],
        *,
        step: int | None = None,
        values: Mapping[int, Mapping[str, int]] | None = None,
        altered: Mapping[int, tuple[str, ...]] | None = None,
        replicas: str = "world",
        first: int = 0,
    ) -> Self:
        """Ranks tell the checksums of their replicas at the end of the last step."""
        at = self.step_in_work - 1 if step is None else step
        for rank, total in totals.items():
            named = (values or {}).get(rank, {})
            self.from_rank(
                rank,
                m.Checksums,
                step=at,
                first=first,
                total=total,
                values=tuple(m.Checksum(name, value) for name, value in named.items()),
                replicas=replicas,
                altered=None if altered is None else altered.get(rank, ()),
            )
        self.tick()
        return self

    def criticals(self) -> list[Finding]:
        return [finding for finding in self.findings() if finding.severity == "critical"]

    def ever(self) -> set[str]:
        """Kinds of all findings the run ever had."""
        return {entry.finding.kind for entry in self.core.know.incidents.shown}
