"""A small training run with all the ways of attaching, and of ending, that users have.

Prints one JSON line: rank, sha256 of the weights, and the losses and norms it saw itself.
"""

import hashlib
import json
import os
import sys
import time
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from rankscope.agent import attach

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def option(name: str, default: Any = None) -> Any:
    return OPTIONS.get(name, default)


class Net(torch.nn.Module):
    """Returns its loss, or the prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return y.pow(2).mean() if option("returns_loss") else y


class Data(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, length: int, rank: int) -> None:
        self.length = length
        self.rank = rank

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(16, generator=torch.Generator().manual_seed(index * 31 + self.rank))


def train(rank: int) -> None:
    """Once, or once in each of the ``ways``: of all but the last too is told what came out."""
    *others, last = option("ways", [option("attach", "after")])
    before = []
    for way in others:
        if way == "off":
            os.environ["RANKSCOPE"] = "off"
        report = trained(rank, {"off": "after"}.get(way, way), waits=False)
        os.environ.pop("RANKSCOPE", None)
        before.append({"way": way, **report})
    report = {**trained(rank, last), "before": before}
    sys.stdout.write(json.dumps(report) + "\n")  # in one piece: ranks share a pipe
    sys.stdout.flush()
    if option("ddp"):
        # gloo's own thread needs the interpreter to let go of the last collective; a group that is
        # destroyed before it has, with the interpreter held, waits for it for ever. A barrier has
        # no tensor, and goes through after what was before it.
        if option("only_rank") is None:
            torch.distributed.barrier()
        time.sleep(0.2)
        torch.distributed.destroy_process_group()


def trained(rank: int, attaches: str, waits: bool = True) -> dict[str, Any]:
    """What came of training, attached in that way; ``waits``: for the file ``until``."""
    torch.manual_seed(7)
    model: torch.nn.Module = Net()
    agent: Any = None

    def attach_now() -> Any:
        from rankscope.agent.sender import Sender

        if option("only_rank", rank) == rank:
            if "until" in OPTIONS:  # a busy machine may not get last words out in 200 ms
                Sender.flush.__defaults__ = Sender.end.__defaults__ = (30.0,)
            return attach(model, optimizer, start_step=option("start_step", 0))
        return None

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if attaches == "before":
        agent = attach_now()
    if option("ddp"):
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
        model = DistributedDataParallel(model)
    if attaches == "after":
        agent = attach_now()
    if attaches == "twice":
        agent = attach_now()
        assert attach_now() is agent
    if option("end") == "hook_replaced":
        sys.excepthook = lambda *_: None

    workers = option("workers", 0)
    loader: Any = torch.utils.data.DataLoader(
        Data(int(option("steps", 5)) * 8, rank),
        batch_size=8,
        num_workers=workers,
        multiprocessing_context=option("context", "fork") if workers else None,
    )
    form = option("form", "plain")
    if form == "with":
        with agent:
            losses = loop(rank, model, optimizer, agent.batches(loader), agent, waits)
    else:
        boundary = agent if form == "end_step" else None
        losses = loop(rank, model, optimizer, loader, boundary, waits)
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    report = {"rank": rank, "weights": digest.hexdigest(), **losses}
    report["modules"] = sorted(name for name in sys.modules if name == "rankscope.agent.registry")
    report["pid"] = os.getpid()
    return report


def loop(
    rank: int, model: Any, optimizer: Any, batches: Any, agent: Any, waits: bool
) -> dict[str, Any]:
    seen: dict[str, Any] = {"losses": [], "norms": []}
    for step, x in enumerate(batches, start=1):
        optimizer.zero_grad()
        y = model(x)
        loss = y if option("returns_loss") else y.pow(2).mean()
        loss.backward()
        if option("clip"):
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            seen["norms"].append(float(norm))
        optimizer.step()
        seen["losses"].append(loss.item())
        if agent is not None:
            agent.end_step(loss=loss, tokens=8)
        if "pace_s" in OPTIONS:
            time.sleep(OPTIONS["pace_s"])
        if waits and step == option("wait_at", option("steps")):
            wait_for_file()
        if step == option("end_at") and rank == option("end_rank", 0):
            end(option("end"))
    return seen


def wait_for_file() -> None:
    """Stay here until the file ``until`` is there, where one was named."""
    deadline = time.monotonic() + 150
    while "until" in OPTIONS and not os.path.exists(OPTIONS["until"]):  # noqa: PTH110
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(how: str) -> None:
    if how in ("raise", "hook_replaced"):
        raise ValueError("no such token")
    if how == "exit":
        sys.exit(3)
    if how == "os_exit":
        os._exit(9)
    if how == "interrupt":
        raise KeyboardInterrupt


def spawned(index: int, port: int, world_size: int) -> None:
    """One rank of mp.spawn: no launcher's environment at all."""
    torch.set_num_threads(1)
    if option("attach_early"):
        OPTIONS["attach"] = "before"
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    real = torch.distributed.init_process_group

    def init(backend: str) -> None:
        real(backend, rank=index, world_size=world_size)

    torch.distributed.init_process_group = init  # type: ignore[assignment]
    train(index)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "spawn" in OPTIONS:
        multiprocessing: Any = torch.multiprocessing
        multiprocessing.spawn(spawned, (OPTIONS["port"], OPTIONS["spawn"]), OPTIONS["spawn"])
    else:
        train(int(os.environ.get("RANK", "0")))
