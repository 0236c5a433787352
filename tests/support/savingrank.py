"""One rank of a small training run that saves, as a forked process that is told what to do.

It gives back the outcomes of its saves, the hash of the weights at each saved step and at the end,
and what it resumed from.
"""

import hashlib
import os
import resource
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import (  # torch.distributed's own, but not exported
    PrefixStore,
    TCPStore,
)
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rankscope.agent.checkpoint import Checkpointer, stores
from rankscope.protocol.exits import UserError

WIDTH = 130
LONG_S = 150.0
"""No healthy save fails for a machine that is busy: only one that breaks may be given up soon."""


def build(kind: str) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(
        nn.Linear(16, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.2), nn.Linear(WIDTH, 3)
    )
    if kind == "fsdp2":
        fully_shard(model[0])  # type: ignore[index]
        fully_shard(model)
        return model
    return DistributedDataParallel(model) if kind == "ddp" else model


def digest(model: nn.Module) -> str:
    """Of the whole model, whoever holds which part. A collective of all ranks."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    whole = hashlib.sha256()
    for _, value in sorted(state.items()):
        assert isinstance(value, Tensor)
        whole.update(value.numpy().tobytes())
    return whole.hexdigest()[:16]


passed = threading.Event()
"""The training thread has called the save after the one that is slow."""


def break_here(what: str) -> None:
    if what == "raise":
        raise OSError(5, "Input/output error", "the disk")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "slow":
        assert passed.wait(120.0)
    if what == "full":  # files may not grow beyond a page: what a disk says that is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def mend() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def main(told: dict[str, Any]) -> dict[str, Any]:
    """``saves``: {step: request}; ``breaks``: [[rank, step, phase, what]]; ``offset``: {rank: n},
    how far that rank's count of steps is off in the save of step ``offset_at``; ``silent_s``: for
    how long a rank may say nothing in a save that breaks."""
    rank = dist.get_rank()
    torch.manual_seed(1 + rank)
    model = build(told["kind"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 6])
    outcomes: list[list[Any]] = []
    hashes: dict[str, str] = {}
    saver = Checkpointer(
        state={"model": model, "optimizer": optimizer, "scheduler": scheduler},
        dir=told["dir"],
        keep=told.get("keep"),
        timeout_s=told.get("timeout_s", LONG_S),
    )
    saver.on_outcome.append(lambda found: outcomes.append([found.step, found.ok, found.text]))

    def on_phase(phase: str, saved: int) -> None:
        for broken, step, where, what in told.get("breaks", ()):
            if (broken, step, where) == (rank, saved, phase):
                break_here(what)

    saver.on_phase.append(on_phase)
    start, resumed = 0, None
    if told.get("resume"):
        try:
            resumed = saver.resume(told["resume"])
        except UserError as error:
            return {"rank": rank, "refused": str(error)}
        if resumed is not None:
            start = resumed.step
            resumed.restore_random()
            hashes[f"loaded {start}"] = digest(model)
    for step in range(start + 1, told["steps"] + 1):
        inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if str(step) in told.get("saves", {}):
            hashes[str(step)] = digest(model)
            broken = any(at == step for _, at, _, _ in told.get("breaks", ()))
            saver.silent_s = told.get("silent_s", LONG_S) if broken else LONG_S
            off = told.get("offset", {}).get(str(rank), 0) if step == told.get("offset_at") else 0
            saver.save(step + off, told["saves"][str(step)])
            if step - 1 in told.get("unawaited", ()):
                passed.set()
            if step not in told.get("unawaited", ()):
                saver.wait()
                mend()
    saver.wait()
    return {
        "rank": rank,
        "outcomes": outcomes,
        "hashes": hashes,
        "end": digest(model),
        "phase": saver.progress().phase,
        "resumed": None if resumed is None else [resumed.step, resumed.skipped, resumed.exact],
    }


def in_launchers_store(rank: int, count: int, port: int, life: int) -> None:
    """A store that outlives the ranks, as a launcher's may, is that of the ranks.

    gloo itself would find the addresses of the ranks before in it, so it has a part of its own.
    """
    os.environ |= {"LOCAL_WORLD_SIZE": str(count), "TORCHELASTIC_RESTART_COUNT": str(life)}
    launchers = TCPStore("127.0.0.1", port)
    own = PrefixStore(f"gloo-{life}", launchers)
    dist.init_process_group("gloo", store=own, rank=rank, world_size=count)
    stores._get_default_store = lambda: launchers  # type: ignore[attr-defined]


def run(answer: Connection, rank: int, count: int, port: int, told: dict[str, Any]) -> None:
    """What the process of ``rank`` of ``count`` does."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANKSCOPE="off",
    )
    torch.set_num_threads(1)
    if "life" not in told:
        dist.init_process_group("gloo")
    else:
        in_launchers_store(rank, count, *told["life"])
    answer.send(main(told))
    answer.close()
    dist.barrier()
    dist.destroy_process_group()
