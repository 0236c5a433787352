"""Ranks that should be the same are not, or that should differ are the same."""

from typing import Any

import torch

from rankscope.trainers.faults.hit import Hit
from rankscope.trainers.faults.numerics import local, some_parameter

BIT = 1 << 22
"""The first bit of an fp32 mantissa: the number changes by up to a half, and stays finite."""


def bit_flip(hit: Hit) -> None:
    name, parameter = some_parameter(hit)

    def strike() -> None:
        hit.tell(parameter=name)
        local(parameter).view(-1)[:1].view(torch.int32).bitwise_xor_(BIT)

    if hit.here:
        hit.site.points.once("begin", hit.spec.step, strike)


def lone_step(hit: Hit) -> None:
    """All other ranks skip the update, as a guard that looks at local numbers would."""
    optimizer, points = hit.site.optimizer, hit.site.points
    update = optimizer.step

    def step(*args: Any, **kwargs: Any) -> Any:
        return None if points.step == hit.spec.step else update(*args, **kwargs)

    if hit.here:
        points.once("optimizer", hit.spec.step, hit.tell)
    else:
        optimizer.step = step  # type: ignore[method-assign]


def same_data(hit: Hit) -> None:
    if hit.here:
        hit.tell()
        hit.site.points.data.sampler.rank = hit.other()


def same_seed(hit: Hit) -> None:
    if hit.here:
        hit.tell()
        torch.manual_seed(hit.site.config.seed + 1 + hit.other())  # as trainers.program has it
