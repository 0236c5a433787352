"""A NaN in what one rank reads, computes, keeps, or updates its parameters with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.trainers.data import Batch
from rankscope.trainers.faults.hit import Hit
from rankscope.trainers.faults.points import bare, middle
from rankscope.trainers.faults.specs import named
from rankscope.trainers.model import VOCABULARY


def nan_input(hit: Hit) -> None:
    """A batch arrives as probabilities of bytes instead of bytes, and one of them is NaN.

    Bytes cannot be NaN. The probabilities are those of the bytes themselves (1 or 0), so all but
    the NaN is as without the fault.
    """
    model = bare(hit.site.parallel.model)
    points = hit.site.points
    at = int(hit.spec.where or 1)
    inner = model.token.forward

    def embed(given: Tensor) -> Tensor:
        return given @ model.token.weight if given.is_floating_point() else inner(given)

    def spoil(batch: Batch) -> Batch:
        inputs, targets = batch
        if (points.step, points.reading) != (hit.spec.step, at):
            return batch
        hit.tell(microbatch=at)
        probabilities = F.one_hot(inputs, VOCABULARY).float()
        probabilities[0, 0, 0] = torch.nan
        return probabilities, targets

    if hit.here:
        model.token.forward = embed  # type: ignore[method-assign,assignment]
        points.change_batch = spoil
        points.on("data", lambda: None)


def nan_module(hit: Hit) -> None:
    """One number of one module's output is NaN; its input was finite."""
    model = bare(hit.site.parallel.model)
    default = middle(name for name, _ in model.named_modules() if name.endswith(".mlp"))
    name, microbatch = named(hit.spec.where or default)
    points = hit.site.points
    done = False

    def on_output(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        nonlocal done
        if done or (points.step, points.microbatch) != (hit.spec.step, microbatch):
            return output
        done = True
        hit.tell(module=name, microbatch=microbatch)
        spoiled = output.clone()
        spoiled.view(-1)[0] = torch.nan
        return spoiled

    if hit.here:
        model.get_submodule(name).register_forward_hook(on_output)


class _NanForward(torch.autograd.Function):
    """NaN forwards, the gradient as it is backwards."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return torch.full_like(value, torch.nan)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def nan_loss(hit: Hit) -> None:
    points = hit.site.points
    before = hit.site.parallel.loss_sum
    microbatch = int(hit.spec.where or 1)

    def loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
        total = before(logits, targets)
        if not torch.is_grad_enabled() or (points.step, points.microbatch) != (
            hit.spec.step,
            microbatch,
        ):
            return total
        hit.tell(microbatch=microbatch)
        spoiled: Tensor = _NanForward.apply(total)  # type: ignore[no-untyped-call]
        return spoiled

    if hit.here:
        hit.site.parallel = replace(hit.site.parallel, loss_sum=loss_sum)


def nan_parameter(hit: Hit) -> None:
    """In this rank's replica, or in its shard, before the step's forward."""
    name, parameter = some_parameter(hit)

    def strike() -> None:
        hit.tell(parameter=name)
        with torch.no_grad():
            local(parameter).view(-1)[0] = torch.nan

    if hit.here:
        hit.site.points.once("begin", hit.spec.step, strike)


def nan_optimizer(hit: Hit) -> None:
    """In the running mean of a gradient, before the step's update reads it."""
    name, parameter = some_parameter(hit)
    optimizer = hit.site.optimizer

    def strike() -> None:
        hit.tell(parameter=name)
        local(optimizer.state[parameter]["exp_avg"]).view(-1)[0] = torch.nan

    if hit.here:
        before_update(hit, strike)


def before_update(hit: Hit, action: Callable[[], None]) -> None:
    """Do ``action`` when the optimizer is called in the step, before it does anything."""
    points = hit.site.points

    def strike(*_: Any) -> None:
        if points.step == hit.spec.step:
            action()

    hit.site.optimizer.register_step_pre_hook(strike)


def some_parameter(hit: Hit) -> tuple[str, nn.Parameter]:
    """The parameter of ``where``, else one in the middle of the model."""
    model = bare(hit.site.parallel.model)
    names = [name for name, _ in model.named_parameters()]
    default = middle(name for name in names if name.endswith(".mlp.up.weight"))
    name, _ = named(hit.spec.where or default)
    return name, model.get_parameter(name)


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of ``tensor``, sharing its memory."""
    part = getattr(tensor, "to_local", None)
    found: Tensor = part() if part is not None else tensor.detach()
    return found
