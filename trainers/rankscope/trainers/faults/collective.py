"""One rank's collectives differ from those of the others.

All but the exits change what a step begins with, the all-reduce of its token counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from rankscope.trainers import launch, loop
from rankscope.trainers.faults.hit import Hit, dwell
from rankscope.trainers.faults.points import Points
from rankscope.trainers.faults.truth import place_of
from rankscope.trainers.launch import Ranks

WRONG_NUMBERS = 1024
CALL = "    dist."
"""What the line of a call has in it, and the line of ``def`` has not."""
Sum = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class AlteredRanks(Ranks):
    """Ranks whose first sum in step ``step`` is another function."""

    before: Ranks
    points: Points
    step: int
    instead: Sum

    def sum(self, values: Tensor) -> Tensor:
        if self.points.step == self.step and self.points.microbatch == 0:
            dwell()  # gloo may abort a rank at once when collectives do not match
            return self.instead(values)
        return self.before.sum(values)


def alter(hit: Hit, instead: Sum) -> None:
    """Let ``instead`` add up the token counts of the step on this rank."""
    site = hit.site
    ranks = site.parallel.ranks
    altered = AlteredRanks(
        ranks.rank, ranks.size, ranks.group, ranks, site.points, hit.spec.step, instead
    )
    site.parallel = replace(site.parallel, ranks=altered)


def skipped(hit: Hit) -> None:
    """The rank goes on to the next collective of the step while the others wait in this one."""

    def instead(values: Tensor) -> Tensor:
        line = "parallel.model(" if hit.sharded else ".backward()"
        source = place_of(loop.accumulate, line)
        hit.tell(collective="all_reduce", source=source)
        return values

    if hit.here:
        alter(hit, instead)


def extra(hit: Hit) -> None:
    group = hit.site.parallel.ranks.group

    def instead(values: Tensor) -> Tensor:
        dist.all_reduce(values, group=group)
        others_are_in = "all_gather" if hit.sharded else "all_reduce"
        hit.tell(collective=others_are_in, source=place_of(once_more, CALL))
        return once_more(values, group)

    if hit.here:
        alter(hit, instead)


def once_more(values: Tensor, group: "dist.ProcessGroup | None") -> Tensor:
    dist.all_reduce(values.clone(), group=group)
    return values


def wrong_operation(hit: Hit) -> None:
    differently(hit, broadcast)


def wrong_size(hit: Hit) -> None:
    differently(hit, many)


def wrong_dtype(hit: Hit) -> None:
    differently(hit, in_float)


def broadcast(values: Tensor, group: "dist.ProcessGroup | None") -> None:
    dist.broadcast(values, group_src=0, group=group)


def many(values: Tensor, group: "dist.ProcessGroup | None") -> None:
    dist.all_reduce(values.repeat(WRONG_NUMBERS), group=group)


def in_float(values: Tensor, group: "dist.ProcessGroup | None") -> None:
    dist.all_reduce(values.float(), group=group)


def differently(hit: Hit, wrong: "Callable[[Tensor, dist.ProcessGroup | None], None]") -> None:
    """The rank calls ``wrong`` where the others all-reduce."""

    def instead(values: Tensor) -> Tensor:
        hit.tell(collective="all_reduce", source=place_of(wrong, CALL))
        wrong(values, hit.site.parallel.ranks.group)
        return values

    if hit.here:
        alter(hit, instead)


def wrong_order(hit: Hit) -> None:
    """Every rank reduces and gathers in this step; one gathers first."""
    group = hit.site.parallel.ranks.group
    normal = hit.site.parallel.ranks.sum

    def instead(values: Tensor) -> Tensor:
        calls = [reduce_in, gather_in]
        if hit.here:
            calls.reverse()
            hit.tell(collective="all_reduce", source=place_of(gather_in, "dist.all_gather("))
        for call in calls:
            call(group)
        return normal(values)

    alter(hit, instead)


def reduce_in(group: "dist.ProcessGroup | None") -> None:
    dist.all_reduce(torch.ones(256), group=group)


def gather_in(group: "dist.ProcessGroup | None") -> None:
    parts = [torch.empty(32) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, torch.ones(32), group=group)


def group_order(hit: Hit) -> None:
    """Every rank reduces in two groups in this step; one takes the second group first."""
    everyone = list(range(hit.site.place.world_size))
    groups: Sequence[dist.ProcessGroup] = [dist.new_group(everyone) for _ in range(2)]
    normal = hit.site.parallel.ranks.sum

    def instead(values: Tensor) -> Tensor:
        order = list(groups)
        if hit.here:
            order.reverse()
            hit.tell(collective="all_reduce")
        for group in order:
            reduce_in(group)
        return normal(values)

    alter(hit, instead)


def early_exit(hit: Hit) -> None:
    """The rank leaves the step loop and waits for the others where all leave together."""

    def strike() -> None:
        hit.tell(source=place_of(launch.leave, "dist.barrier()"))
        hit.site.points.leaves = True

    if hit.here:
        hit.site.points.once("loop", hit.spec.step, strike)
