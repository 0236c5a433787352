"""One rank of a run that saves often and is killed sooner or later; see ``_kills``.

Every step's state is told in a file before it can be saved: ``step N HASH``, of the whole model and
optimizer. After a resume comes ``loaded N HASH``.
"""

import contextlib
import hashlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rankscope.agent import attach
from rankscope.agent.checkpoint import Checkpointer, gather, hands

WIDTH = 300
EVERY = 3
KEEP = 4


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of everything that is trained, whoever holds which part. A collective of all ranks."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    states = get_state_dict(model, optimizer, options=options)
    whole = hashlib.sha256()
    for path, value in gather.flat(dict(zip("mo", states, strict=True))):
        data = value.numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode()
        whole.update(repr(path).encode() + data)
    return whole.hexdigest()[:16]


def train(told: dict[str, Any]) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(
        nn.Linear(64, WIDTH), nn.ReLU(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH)
    )
    if told["kind"] == "fsdp2":
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    hands.LEAST_BYTES = told["least_bytes"]
    saver = Checkpointer(
        state={"model": model, "optimizer": optimizer},
        dir=told["dir"],
        every=EVERY,
        keep=KEEP,
        silent_s=20.0,
    )
    saver.on_phase.append(lambda phase, step: at_phase(told, rank, phase))
    with Path(told["log"]).open("a", encoding="ascii") as log:

        def tell(*words: object) -> None:
            if rank == 0:
                log.write(" ".join(map(str, words)) + "\n")
                log.flush()

        saver.on_outcome.append(lambda one: tell("saved" if one.ok else "failed", one.step))
        resumed = saver.resume("auto")
        start = 0
        if resumed is not None:
            start = resumed.step
            whole = digest(model, optimizer)
            tell("loaded", start, whole)
            resumed.restore_random()
        agent = (
            attach(model, optimizer, checkpoint=saver, start_step=start)
            if told["what"] == "hub"
            else contextlib.nullcontext()
        )
        with agent as watched:
            for step in range(start + 1, start + told["steps"] + 1):
                inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(step))
                model(inputs).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                tell("step", step, digest(model, optimizer))
                if watched is not None:
                    watched.end_step()
                saver.end_step(step)
                if told["wait"]:
                    saver.wait()
                if told["what"] == "hub":
                    time.sleep(0.05)  # time for a request to come
        saver.wait()


def at_phase(told: dict[str, Any], rank: int, phase: str) -> None:
    """Some are killed just there, or a moment later."""
    if [rank, phase] == told["at"]:
        told["skip"] -= 1
        if told["skip"] < 0:
            time.sleep(random.uniform(0, told["delay_s"]))
            os.kill(os.getpid(), signal.SIGKILL)


def run(rank: int, count: int, port: int, told: dict[str, Any]) -> None:
    """What the process of ``rank`` of ``count`` does."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(count),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANKSCOPE="on" if told["what"] == "hub" else "off",
        RANKSCOPE_HOME=told["home"],
    )
    with (Path(told["home"]) / f"said-{rank}").open("wb") as said:
        os.dup2(said.fileno(), 2)  # how torch words the death of a peer is seldom asked
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(told)
    dist.barrier()
    dist.destroy_process_group()
