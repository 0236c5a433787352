"""Trains in many ways, each once without and once with observed gradients, on a few ranks.

Prints one JSON line: rank, and for each way whether the weights are the same to the bit, the local
norms of the steps, those that an onlooker computes, the signs and the faults.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP1
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from rankscope.protocol.messages import Signs
from support.observed import Observed, observed

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
STEPS = 4
MANY = 10
"""Enough steps to learn how a loop goes, and to go wrong then."""

WIDE = 190
"""Layers of WIDE × WIDE are large."""

Way = Callable[["Run"], None]


class Net(torch.nn.Module):
    """``early`` has no gradient when ``uses_early`` is off."""

    def __init__(self, width: int = 37) -> None:
        super().__init__()
        self.token = torch.nn.Linear(8, width)
        self.early = torch.nn.Linear(width, width)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self.head = torch.nn.Linear(width, 3)
        self.uses_early = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.token(x))
        if self.uses_early:
            y = torch.tanh(self.early(y))
        for block in self.blocks:
            y = y + torch.tanh(block(y))
        out: torch.Tensor = self.head(y)
        return out


class Run:
    """One way of training, watched or not."""

    def __init__(self, watched: bool, onlooker: bool = False) -> None:
        self.watched = watched
        self.onlooker = onlooker
        self.rank = dist.get_rank()
        self.seen: Observed | None = None
        self.model: Any = None
        self.facts: dict[str, str] = {}
        self.by_one_hook = 0
        """Parameters that are looked at by one hook for them all, in the end."""
        self.expected: list[float] = []
        """Norms of this rank's own gradients, computed apart by an onlooker."""
        self._squares: dict[int, float] = {}

    def read(self) -> None:
        if self.seen is not None:
            self.seen.read()
            probe = self.seen.observer.gradients
            self.facts = probe.read()
            self.by_one_hook = sum(
                len(place.hooks.together.slots) for place in probe.places if place.hooks is not None
            )

    def look_on(self, model: Any) -> None:
        def look(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            self._squares[id(parameter)] = float(parameter.grad.double().norm() ** 2)

        for parameter in model.parameters() if model is not None else ():
            parameter.register_post_accumulate_grad_hook(look)

    def stepped(self) -> None:
        if self.onlooker:
            self.expected.append(math.sqrt(sum(self._squares.values())))
            self._squares.clear()

    def train(
        self,
        model: Any,
        *,
        microbatches: int = 1,
        to_none: bool = True,
        spoil: Callable[[int, int, Any], None] | None = None,
        dtype: torch.dtype = torch.float32,
        clip: bool = False,
        sync: Callable[[Any, bool], Any] | None = None,
        late_hook: Callable[[Any], None] | None = None,
        late: int = 2,
        steps: int = STEPS,
    ) -> None:
        """``spoil(step, microbatch, model)`` is called before each forward, ``late_hook(model)`` as
        step ``late`` begins."""
        self.model = model
        if self.onlooker:
            self.look_on(model if isinstance(model, DDP) else None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        data = torch.Generator().manual_seed(100 + self.rank)
        with observed((model, optimizer)) if self.watched else nullcontext() as seen:
            self.seen = seen
            for step in range(1, steps + 1):
                if step == late and late_hook is not None:
                    late_hook(model)
                for microbatch in range(1, microbatches + 1):
                    if spoil is not None:
                        spoil(step, microbatch, model)
                    last = microbatch == microbatches
                    within = sync or (lambda m, last: nullcontext() if last else m.no_sync())
                    with within(model, last) or nullcontext():
                        x = torch.randn(5, 8, generator=data).to(dtype)
                        (model(x).float().pow(2).mean() / microbatches).backward()
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                self.stepped()
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
            self.read()


def net(dtype: torch.dtype = torch.float32, width: int = 37) -> Net:
    torch.manual_seed(7)
    return Net(width).to(dtype)


def spoiler(rank: int, step: int, microbatch: int, value: float, name: str = "blocks.1.weight"):  # type: ignore[no-untyped-def]
    """One number of one parameter's gradient becomes ``value``, on that rank."""

    def spoil(at_step: int, at_microbatch: int, model: Any) -> None:
        if (at_step, at_microbatch) != (step, microbatch) or rank not in (-1, dist.get_rank()):
            return
        bare = getattr(model, "module", model)
        path, _, attribute = name.rpartition(".")
        owner = bare.get_submodule(path)

        def on_forward(module: Any, args: Any) -> None:
            placing.remove()

            def change(gradient: torch.Tensor) -> torch.Tensor:
                handle.remove()
                changed = gradient.clone()
                changed.view(-1)[5] = value
                return changed

            handle = getattr(owner, attribute).register_hook(change)

        placing = owner.register_forward_pre_hook(on_forward)

    return spoil


def freezing(at: int) -> Callable[[int, int, Any], None]:
    """From the second microbatch of step ``at`` on the first layer is not trained any more, as far
    as autograd is concerned; in the next step it is again."""

    def freeze(step: int, microbatch: int, model: Any) -> None:
        # A parameter that DDP waits for has to be there as it reduces: so in the first alone.
        trained = (step, microbatch) != (at, 1)
        for parameter in model.module.token.parameters():
            parameter.requires_grad_(trained)

    return freeze


def sum_then_divide(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(
        lambda future: future.value()[0].div_(dist.get_world_size())
    )
    return reduced


WAYS: dict[str, Way] = {
    "ddp": lambda run: run.train(DDP(net())),
    "ddp view": lambda run: run.train(DDP(net(), gradient_as_bucket_view=True)),
    "ddp view kept": lambda run: run.train(DDP(net(), gradient_as_bucket_view=True), to_none=False),
    "ddp kept": lambda run: run.train(DDP(net()), to_none=False),
    "ddp small buckets": lambda run: run.train(
        DDP(net(), gradient_as_bucket_view=True, bucket_cap_mb=0.002)
    ),
    "ddp accumulates": lambda run: run.train(DDP(net()), microbatches=3, steps=MANY),
    "ddp view accumulates": lambda run: run.train(
        DDP(net(), gradient_as_bucket_view=True), microbatches=3
    ),
    "ddp view kept accumulates": lambda run: run.train(
        DDP(net(), gradient_as_bucket_view=True), microbatches=3, to_none=False
    ),
    "ddp bf16": lambda run: run.train(DDP(net(torch.bfloat16)), dtype=torch.bfloat16),
    "ddp static": lambda run: run.train(DDP(net(), static_graph=True)),
    "ddp static view": lambda run: run.train(
        DDP(net(), static_graph=True, gradient_as_bucket_view=True)
    ),
    "ddp unused": lambda run: run.train(
        DDP(net(), find_unused_parameters=True),
        spoil=lambda step, _, model: setattr(model.module, "uses_early", step % 2 == 1),
    ),
    "ddp clip": lambda run: run.train(DDP(net()), clip=True),
    "ddp fp16 hook": lambda run: run.train(
        DDP(net()), late_hook=lambda model: model.register_comm_hook(None, fp16_compress_hook)
    ),
    "ddp stock hook": lambda run: run.train(hooked(allreduce_hook)),
    "ddp goes on": lambda run: run.train(DDP(net(width=WIDE)), steps=MANY),
    "ddp goes on kept": lambda run: run.train(DDP(net()), steps=MANY, to_none=False),
    "ddp goes on static": lambda run: run.train(DDP(net(), static_graph=True), steps=MANY),
    "ddp goes on clip": lambda run: run.train(DDP(net(width=WIDE)), steps=MANY, clip=True),
    "ddp goes on freezing": lambda run: run.train(
        DDP(net()), steps=MANY, microbatches=2, spoil=freezing(7)
    ),
    "ddp goes on ignoring": lambda run: run.train(DDP(ignoring(net())), steps=MANY),
    "ddp goes on ignoring nan": lambda run: run.train(
        DDP(ignoring(net())), steps=MANY, spoil=spoiler(1, 9, 1, float("nan"))
    ),
    "ddp goes on thawed": lambda run: run.train(thawed(net()), steps=MANY),
    "ddp goes on wrapped anew": lambda run: wrapped_anew(run),
    "ddp wrapped anew view": lambda run: wrapped_anew(run, gradient_as_bucket_view=True),
    "ddp goes on wrapped anew static": lambda run: wrapped_anew(run, static_graph=True),
    "ddp goes on in part": lambda run: run.train(
        DDP(net()),
        steps=MANY,
        microbatches=2,
        # Under ``no_sync`` a part may be left out without a word to DDP.
        spoil=lambda step, microbatch, model: setattr(
            model.module, "uses_early", (step, microbatch) not in ((7, 1), (9, 1))
        ),
    ),
    "ddp goes on to a hook": lambda run: run.train(
        DDP(net()),
        steps=MANY,
        late_hook=lambda model: model.register_comm_hook(None, sum_then_divide),
        late=9,
    ),
    "ddp join": lambda run: joined(run),
    "ddp inside": lambda run: inside(run),
    "ddp compiled": lambda run: run.train(DDP(compiled(net())), steps=3),
    "ddp checkpointed": lambda run: run.train(DDP(Checkpointed(net()))),
    "ddp nan": lambda run: run.train(
        DDP(net(), gradient_as_bucket_view=True),
        microbatches=3,
        spoil=spoiler(1, 2, 2, float("nan")),
    ),
    "ddp goes on nan": lambda run: run.train(
        DDP(net(width=WIDE)),
        steps=MANY,
        microbatches=3,
        spoil=spoiler(1, 8, 2, float("nan")),
    ),
    "ddp goes on inf": lambda run: run.train(
        DDP(net(width=WIDE)), steps=MANY, spoil=spoiler(0, 9, 1, float("inf"), "blocks.0.bias")
    ),
    "ddp inf": lambda run: run.train(DDP(net()), spoil=spoiler(0, 3, 1, float("-inf"))),
    "ddp cast": lambda run: run.train(hooked(fp16_compress_hook), spoil=spoiler(1, 2, 1, 1e6)),
    "ddp large": lambda run: run.train(DDP(net()), spoil=spoiler(1, 2, 1, 1e30)),
    "ddp sum": lambda run: run.train(hooked(sum_then_divide), spoil=spoiler(-1, 2, 1, 3e38)),
    "ddp sum clip": lambda run: run.train(
        hooked(sum_then_divide), spoil=spoiler(-1, 2, 1, 3e38), clip=True
    ),
    "fsdp1": lambda run: run.train(flat(net(), False)),
    "fsdp1 orig": lambda run: run.train(flat(net(), True)),
    "fsdp1 accumulates": lambda run: run.train(flat(net(), True), microbatches=3, steps=MANY),
    "fsdp1 bf16": lambda run: run.train(
        flat(net(), True, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32))
    ),
    "fsdp1 nan": lambda run: run.train(
        flat(net(), True), microbatches=3, spoil=output_spoiler(1, 2, 2)
    ),
    "fsdp2": lambda run: run.train(sharded(net())),
    "fsdp2 accumulates": lambda run: run.train(
        sharded(net()), microbatches=3, sync=set_sync, steps=MANY
    ),
    "fsdp2 kept": lambda run: run.train(sharded(net(), reshard_after_forward=False)),
    "fsdp2 bf16": lambda run: run.train(
        sharded(net(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
    ),
    "fsdp2 bf16 accumulates": lambda run: run.train(
        sharded(net(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
        microbatches=3,
        sync=set_sync,
    ),
    "fsdp2 fp16 reduce": lambda run: run.train(
        sharded(net(), mp_policy=MixedPrecisionPolicy(None, torch.float16)),
    ),
    "fsdp2 unused": lambda run: run.train(
        sharded(net()),
        spoil=lambda step, _, model: setattr(model, "uses_early", step % 2 == 1),
    ),
    "fsdp2 hsdp": lambda run: run.train(sharded(net(), mesh=mesh(replicas=dist.get_world_size()))),
    "fsdp2 two replicas": lambda run: run.train(sharded(net(), mesh=mesh(replicas=2))),
    "fsdp2 compiled": lambda run: run.train(sharded(compiled(net())), steps=3),
    "fsdp2 clip": lambda run: run.train(sharded(net()), clip=True),
    "fsdp2 nan": lambda run: run.train(
        sharded(net()), microbatches=3, sync=set_sync, spoil=spoiler(1, 2, 2, float("nan"))
    ),
    "fsdp2 bf16 nan": lambda run: run.train(
        sharded(net(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
        microbatches=3,
        sync=set_sync,
        spoil=spoiler(1, 2, 3, float("nan")),
    ),
    "fsdp2 cast": lambda run: run.train(
        sharded(net(), mp_policy=MixedPrecisionPolicy(None, torch.float16)),
        spoil=spoiler(1, 2, 1, 1e6),
    ),
    "fsdp2 cast accumulates": lambda run: run.train(
        sharded(net(), mp_policy=MixedPrecisionPolicy(None, torch.float16)),
        microbatches=3,
        sync=set_sync,
        spoil=spoiler(1, 2, 2, 1e6),
    ),
    "fsdp2 sum": lambda run: run.train(sharded(net()), spoil=spoiler(-1, 2, 1, 3e38)),
}


def compiled(model: Net) -> Net:
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model


class Checkpointed(torch.nn.Module):
    """Recomputes the whole model in backward."""

    def __init__(self, inner: Net) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


def mesh(replicas: int = 1) -> Any:
    shape = (replicas, dist.get_world_size() // replicas)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))


def sharded(model: Net, **options: Any) -> Any:
    if "mesh" not in options:
        options["mesh"] = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def flat(model: Net, orig: bool, **options: Any) -> Any:
    for index, block in enumerate(model.blocks):
        model.blocks[index] = FSDP1(
            block, use_orig_params=orig, device_id=torch.device("cpu"), **options
        )
    return FSDP1(model, use_orig_params=orig, device_id=torch.device("cpu"), **options)


def output_spoiler(rank: int, step: int, microbatch: int):  # type: ignore[no-untyped-def]
    """The gradient of the second block's output becomes NaN, on that rank."""

    def spoil(at_step: int, at_microbatch: int, model: Any) -> None:
        if (at_step, at_microbatch) != (step, microbatch) or rank != dist.get_rank():
            return
        (block,) = (m for n, m in model.named_modules() if n.endswith("blocks.1"))

        def on_output(module: Any, args: Any, output: Any) -> None:
            handle.remove()
            output.register_hook(lambda gradient: gradient * float("nan"))

        handle = block.register_forward_hook(on_output)

    return spoil


def set_sync(model: Any, last: bool) -> None:
    model.set_requires_gradient_sync(last)


def hooked(hook: Any) -> Any:
    model = DDP(net())
    model.register_comm_hook(None, hook)
    return model


def joined(run: Run) -> None:
    """Rank 0 runs out of data after two steps."""
    model = DDP(net())
    with model.join():
        run.train(model, steps=2 if run.rank == 0 else 4)


def inside(run: Run) -> None:
    """The model is watched, and its wrapper is what is called."""
    model = net()
    wrapper = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + run.rank)
    run.model = wrapper
    with observed((model, optimizer)) if run.watched else nullcontext() as seen:
        run.seen = seen
        for _ in range(STEPS):
            wrapper(torch.randn(5, 8, generator=data)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        run.read()


def ignoring(model: Net) -> Net:
    """DDP leaves its first layer alone, whose gradients come last."""
    leave: Any = DDP._set_params_and_buffers_to_ignore_for_model
    leave(model, ["token.weight", "token.bias"])
    return model


def thawed(model: Net) -> DDP:
    """Its first layer was frozen when it was wrapped, and is trained by each rank alone."""
    model.token.requires_grad_(False)
    wrapper = DDP(model)
    model.token.requires_grad_(True)
    return wrapper


def wrapped_anew(run: Run, **options: Any) -> None:
    """The model is watched; another wrapper takes it over when one hook serves all."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + run.rank)
    if run.onlooker:
        run.look_on(model)
    run.model = DDP(model)
    with observed((model, optimizer)) if run.watched else nullcontext() as seen:
        run.seen = seen
        for step in range(1, MANY + 1):
            if step == 7:
                run.model = DDP(model, **options)
            run.model(torch.randn(5, 8, generator=data)).pow(2).mean().backward()
            run.stepped()
            optimizer.step()
            optimizer.zero_grad()
        run.read()


def digest(model: Any) -> str:
    whole = hashlib.sha256()
    for _, value in sorted(model.state_dict().items()):
        local = value.to_local() if hasattr(value, "to_local") else value
        whole.update(local.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def outcome(way: Way) -> dict[str, Any]:
    plain, onlooker, watched = Run(False), Run(False, onlooker=True), Run(True)
    way(plain)
    way(onlooker)
    way(watched)
    assert watched.seen is not None
    seen = watched.seen
    signs = [fields for kind, fields in seen.urgent if kind is Signs]
    return {
        "equal": digest(plain.model) == digest(watched.model),
        "weights": digest(watched.model),
        "norms": [repr(record.local_norm) for record in seen.steps],
        "expected": [repr(norm) for norm in onlooker.expected],
        "scales": [record.loss_scale for record in seen.steps],
        "signs": [
            [
                sign.stage.name,
                sign.step,
                sign.microbatch,
                sign.name,
                sign.value,
                sign.count,
                sign.others,
                sign.note,
            ]
            for fields in signs
            for sign in fields["signs"]
        ],
        "looked": [[stage.name for stage in fields["looked"]] for fields in signs],
        "by_one_hook": watched.by_one_hook,
        "faults": [fields for kind, fields in seen.urgent if "error" in fields],
        "facts": watched.facts,
    }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    wanted = OPTIONS.get("ways") or [way for way in WAYS if way.startswith(OPTIONS["prefix"])]
    found = {name: outcome(WAYS[name]) for name in wanted}
    for rank in range(dist.get_world_size()):  # long lines that are printed at once get mixed up
        if rank == dist.get_rank():
            print(json.dumps({"rank": rank, "ways": found}), flush=True)
        dist.barrier()
    os._exit(0)  # what gloo's threads do at the end is not what is tested


if __name__ == "__main__":
    main()
