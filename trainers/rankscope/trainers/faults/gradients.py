"""One parameter's gradient is wrong before it is reduced, or becomes so in the reduction."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket  # torch.distributed's own, but not exported
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from rankscope.trainers.faults.hit import Hit
from rankscope.trainers.faults.numerics import some_parameter
from rankscope.trainers.faults.points import bare
from rankscope.trainers.faults.specs import named

BEYOND_FP16 = 1e6
NEAR_THE_TOP_OF_FP32 = 3e38
OUTLIER = 1e4

Change = Callable[[Tensor], Tensor]


def nan_gradient(hit: Hit) -> None:
    change_gradient(hit, first_number(torch.nan))


def gradient_outlier(hit: Hit) -> None:
    change_gradient(hit, lambda gradient: gradient * OUTLIER)


def sticky_nan(hit: Hit) -> None:
    """The NaN stays: the update is skipped on all ranks, and this one never clears the gradient."""
    _, parameter = some_parameter(hit)
    optimizer, points = hit.site.optimizer, hit.site.points
    change_gradient(hit, first_number(torch.nan), microbatch=False)
    skip_if_not_finite(hit)
    clear = optimizer.zero_grad

    def zero_grad(set_to_none: bool = True) -> None:
        kept = parameter.grad if points.step >= hit.spec.step else None
        clear(set_to_none=set_to_none)
        if kept is not None:
            parameter.grad = kept

    if hit.here:
        optimizer.zero_grad = zero_grad  # type: ignore[method-assign]


def skip_if_not_finite(hit: Hit) -> None:
    """Guard every update as careful loops do: none with a gradient that is not finite."""
    optimizer = hit.site.optimizer
    update = optimizer.step

    def step(*args: Any, **kwargs: Any) -> Any:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        if all(bool(norm.isfinite()) for norm in norms([g for g in gradients if g is not None])):
            return update(*args, **kwargs)
        return None

    optimizer.step = step  # type: ignore[method-assign]


def norms(gradients: list[Tensor]) -> list[Tensor]:
    """A number of each gradient's local part that is finite only if all of it is."""
    return [getattr(g, "to_local", lambda g=g: g)().abs().sum() for g in gradients]


def cast_overflow(hit: Hit) -> None:
    """Gradients travel as fp16 in this run; one is finite, and too large for that."""
    change_gradient(hit, first_number(BEYOND_FP16), microbatch=False)
    model = hit.site.parallel.model
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(hit.site.parallel.ranks.group, fp16_compress_hook)


def reduction_overflow(hit: Hit) -> None:
    """Gradients are added up before they are divided; each is finite, and their sum is not."""
    change_gradient(hit, first_number(NEAR_THE_TOP_OF_FP32), microbatch=False, everywhere=True)
    model = hit.site.parallel.model
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(hit.site.parallel.ranks.group, sum_then_divide)


def sum_then_divide(state: "dist.ProcessGroup", bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """A hook of DDP that adds up first, as one would write it without thinking of overflow."""
    work = dist.all_reduce(bucket.buffer(), group=state, async_op=True)
    assert work is not None

    def divide(future: "torch.futures.Future[list[Tensor]]") -> Tensor:
        return future.value()[0].div_(dist.get_world_size(state))

    reduced: torch.futures.Future[Tensor] = work.get_future().then(divide)
    return reduced


def first_number(value: float) -> Change:
    def change(gradient: Tensor) -> Tensor:
        spoiled = gradient.clone()
        spoiled.view(-1)[0] = value
        return spoiled

    return change


def change_gradient(
    hit: Hit, change: Change, *, microbatch: bool = True, everywhere: bool = False
) -> None:
    """``change`` the parameter's gradient of one microbatch of the step, before any reduction.

    The hook is placed in the forward, when a sharded parameter is whole: it is another tensor then
    than the one the optimizer has.
    """
    name, _ = some_parameter(hit)
    at = named(hit.spec.where)[1] if "/" in hit.spec.where else 1
    path, _, attribute = name.rpartition(".")
    module = bare(hit.site.parallel.model).get_submodule(path)
    points = hit.site.points
    placed: list[Any] = []

    def on_gradient(gradient: Tensor) -> Tensor:
        for handle in placed[:1]:
            handle.remove()
        if hit.here:
            where: dict[str, str | int] = {"microbatch": at} if microbatch else {}
            hit.tell(parameter=name, **where)
        return change(gradient)

    def on_forward(owner: nn.Module, args: Any) -> None:
        now = (points.step, points.microbatch)
        if not placed and torch.is_grad_enabled() and now == (hit.spec.step, at):
            placed.append(getattr(owner, attribute).register_hook(on_gradient))

    if hit.here or everywhere:
        module.register_forward_pre_hook(on_forward)
