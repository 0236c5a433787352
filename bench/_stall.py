"""What a save adds to training until it is published, beside ``dcp.save`` in the same run.

Two ranks train experts of their own (parameters sharded over the ranks, of which none is gathered)
and meet at the end of each step; each writes over 300 MB. FSDP2 over gloo would do little but send:
its threads leave no core free, and a step's time scatters by more than what is looked for here.

Blocks of steps without a save alternate with saves of ours and of DCP. What a save of ours adds is
the wall time from its call to the end of the first step after its publication, less as many steps
as were made meanwhile, at the mean of the blocks before and behind it. The same is worked out for
steps without a save (``noise``): how far that scatters is what the machine does by itself.

The kernel says where the added time went (``/proc/thread-self/schedstat``, proc(5)): the training
thread computed longer (caches and memory were shared), it waited for a core, or it was blocked (in
a collective, for the other rank or for gloo's threads). The first two are told by themselves, too:
they are what a save can take from a thread, and scatter less.
"""

import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

RANKS = 2
WIDTH, LAYERS = 2048, 6
"""25 million parameters on each rank: with AdamW's state 302 MB."""

BATCH = 48
STEPS = 8
"""Without a save, in each block."""

WARM = 1
EACH_THEIRS = 3
"""A save of DCP for so many of ours."""

RESAMPLES = 4000


class Spent(NamedTuple):
    """Seconds of the training thread: of a clock, computing, and waiting for a core."""

    wall_s: float
    cpu_s: float
    queue_s: float

    @classmethod
    def now(cls) -> Self:
        with Path("/proc/thread-self/schedstat").open("rb") as file:
            cpu_ns, queue_ns = file.read().split()[:2]
        return cls(time.perf_counter(), int(cpu_ns) / 1e9, int(queue_ns) / 1e9)

    def since(self, begun: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, begun, strict=True)))

    @property
    def blocked_s(self) -> float:
        return self.wall_s - self.cpu_s - self.queue_s


def idle_s() -> float:
    """Seconds that the machine's cores have been idle, added up."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


# --- in the ranks ------------------------------------------------------------------------------


def rank_main(folder: Path, seconds: float) -> None:
    """Blocks and saves for so long, once all is warm; each rank leaves what it found."""
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from rankscope.agent.checkpoint import Checkpointer

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (RANKS,))

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            own = (torch.randn(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(LAYERS))
            sharded = (DTensor.from_local(one, mesh, [Shard(0)]) for one in own)
            self.weights = nn.ParameterList(map(nn.Parameter, sharded))

        def forward(self, inputs: Tensor) -> Tensor:
            for weight in self.weights:
                inputs = nn.functional.relu(inputs @ weight.to_local())
            return inputs

    model = Experts()
    # Nothing is allocated in a step: fresh pages cost whatever the system is in the mood for.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randn(BATCH, WIDTH)
    saver = Checkpointer(state={"model": model, "optimizer": optimizer}, dir=folder / "ours")

    def step(more: bool = False) -> bool:
        """One step; whether there is more to do for any rank, as a real loop asks at each."""
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        any_more = torch.tensor(int(more))
        dist.all_reduce(any_more, dist.ReduceOp.MAX)
        return bool(any_more)

    def timed(work: Callable[[], Any]) -> Spent:
        begun = Spent.now()
        work()
        return Spent.now().since(begun)

    def block() -> list[Spent]:
        step()  # what the save before leaves in the caches is not of the next one
        return [timed(step) for _ in range(STEPS)]

    def ours(number: int) -> dict[str, Any]:
        idle_before_s, begun = idle_s(), Spent.now()
        call = timed(lambda: saver.save(number))
        steps = 1
        while step(saver.saving):
            steps += 1
        whole, idle = Spent.now().since(begun), idle_s() - idle_before_s
        outcome = saver.wait()
        assert outcome is not None
        assert outcome.ok, outcome
        dist.barrier()
        if rank == 0:
            shutil.rmtree(outcome.path)
        size_bytes = saver.progress().total_bytes
        return {"whole": whole, "call": call, "steps": steps, "bytes": size_bytes, "idle_s": idle}

    def theirs(number: int) -> Spent:
        path = folder / f"theirs-{number}"

        def save() -> None:
            states = get_state_dict(model, optimizer)
            dcp_save({"model": states[0], "optimizer": states[1]}, checkpoint_id=path)

        spent = timed(save)
        dist.barrier()
        if rank == 0:
            shutil.rmtree(path)
        return spent

    for number in range(WARM):
        block()
        ours(number + 1)
        theirs(number)
    told: dict[str, list[Any]] = {"blocks": [block()], "ours": [], "theirs": []}
    number = WARM
    until_s = time.monotonic() + seconds
    while step(time.monotonic() < until_s):
        number += 1
        told["ours"].append(ours(number))
        told["blocks"].append(block())
        if number % EACH_THEIRS == 0:
            told["theirs"].append(theirs(number))
            told["blocks"][-1] = told["blocks"][-1], block()  # one behind it for what comes next
        if rank == 0:
            print(f"stall: save {number - WARM}", file=sys.stderr, flush=True)
    (folder / f"told-{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


# --- what comes of it --------------------------------------------------------------------------


class Save(NamedTuple):
    """One save of ours as one rank saw it, beside the steps around it."""

    added: Spent
    call_s: float
    steps: int
    published_s: float
    free: float
    """Of the cores, while it was under way."""


def saves(told: dict[str, list[Any]]) -> tuple[list[Save], list[float], list[float]]:
    """The saves of a rank; as many ``noise`` values in seconds a step; the steps without a save."""
    blocks = [[[Spent(*one) for one in part] for part in parts(b)] for b in told["blocks"]]
    found, noise = [], []
    for number, one in enumerate(told["ours"]):
        before, behind = blocks[number][-1], blocks[number + 1][0]
        usual = mean([*before, *behind])
        whole = Spent(*one["whole"])
        added = Spent(
            *(all_ - one["steps"] * each for all_, each in zip(whole, usual, strict=True))
        )
        free = one["idle_s"] / whole.wall_s / (os.cpu_count() or 1)
        found.append(Save(added, one["call"][0], one["steps"], whole.wall_s, free))
        noise.append((mean(before).wall_s - mean(behind).wall_s) / 2**0.5)
    steps_s = [one.wall_s for parts_ in blocks for part in parts_ for one in part]
    return found, noise, steps_s


def parts(block: list[Any]) -> list[Any]:
    """A block, or the two of them around a save of DCP."""
    return block if isinstance(block[0][0], list) else [block]


def mean(steps: Sequence[Spent]) -> Spent:
    return Spent(*(statistics.fmean(column) for column in zip(*steps, strict=True)))


def trimmed(values: Sequence[float]) -> float:
    """The mean without the tenth at either end: what the machine does now and then is not ours."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def interval(ours_s: Sequence[float], theirs_s: Sequence[float]) -> tuple[float, float]:
    """95 % of the quotient of both's middles, by resampling either."""
    dice = random.Random(0)
    found = sorted(
        trimmed(dice.choices(ours_s, k=len(ours_s)))
        / statistics.median(dice.choices(theirs_s, k=len(theirs_s)))
        for _ in range(RESAMPLES)
    )
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


class Result(NamedTuple):
    """Shares of ``dcp.save``'s time, with their 95 % intervals among the details."""

    whole: float
    """All time added."""
    own: float
    """Of it what the training thread computed longer or waited for a core."""
    whole_detail: dict[str, Any]
    own_detail: dict[str, Any]


def result(folder: Path) -> Result:
    """The stall of a save over that of ``dcp.save``, the mean of both ranks; and its parts."""
    told = [json.loads((folder / f"told-{rank}.json").read_text()) for rank in range(RANKS)]
    ranks = [saves(one) for one in told]
    each = list(zip(*(found for found, _, _ in ranks), strict=True))

    def of_ranks(part: Callable[[Save], float]) -> list[float]:
        return [statistics.fmean(part(one) for one in both) for both in each]

    pairs = zip(*(one["theirs"] for one in told), strict=True)
    theirs_s = [statistics.fmean(Spent(*one).wall_s for one in both) for both in pairs]

    def share(seconds: list[float]) -> tuple[float, dict[str, Any]]:
        low, high = interval(seconds, theirs_s)
        value = trimmed(seconds) / statistics.median(theirs_s)
        return value, {"low": round(low, 3), "high": round(high, 3)}

    def part(seconds: list[float]) -> list[float]:
        value, ends = share(seconds)
        return [round(value, 3), ends["low"], ends["high"]]

    noise = [statistics.fmean(both) for both in zip(*(n for _, n, _ in ranks), strict=True)]
    steps_s = [one for _, _, steps in ranks for one in steps]
    steps = statistics.fmean(of_ranks(lambda one: one.steps))
    added_s = of_ranks(lambda one: one.added.wall_s)
    whole, ends = share(added_s)
    whole_detail = ends | {
        "saves": len(added_s),
        "theirs": len(theirs_s),
        "bytes_a_rank": told[0]["ours"][0]["bytes"],
        "theirs_s": round(statistics.median(theirs_s), 4),
        "stall_s": round(trimmed(added_s), 4),
        "stall_median_s": round(statistics.median(added_s), 4),
        "call_s": round(trimmed(of_ranks(lambda one: one.call_s)), 4),
        "blocked": part(of_ranks(lambda one: one.added.blocked_s)),
        "published_s": round(statistics.median(of_ranks(lambda one: one.published_s)), 3),
        "steps": round(steps, 2),
        "step_s": round(statistics.median(steps_s), 4),
        "noise_s": round(statistics.stdev(noise) * steps, 4) if len(noise) > 1 else None,
        "cores_idle": round(statistics.fmean(of_ranks(lambda one: one.free)), 3),
    }
    own_s = of_ranks(lambda one: one.added.cpu_s + one.added.queue_s)
    own, own_detail = share(own_s)
    own_detail |= {
        "median_s": round(statistics.median(own_s), 4),
        "computing": part(of_ranks(lambda one: one.added.cpu_s)),
        "waiting_for_a_core": part(of_ranks(lambda one: one.added.queue_s)),
    }
    return Result(whole, own, whole_detail, own_detail)
