"""Trains a few steps on ranks that hold the same, with and without the agent's probes.

Prints one JSON line: rank, whether the weights are the same to the bit with and without, and for
each case the checksums and the faults that were noted.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from rankscope.protocol.messages import Checksums
from support.observed import Observed, observed

STEPS = 6
STRUCK = 3
"""The step in which something is done to the last rank."""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(self.first(x)))
        return out


def plain(model: torch.nn.Module) -> torch.nn.Module:
    return model


def replicate(model: torch.nn.Module) -> torch.nn.Module:
    return DDP(model, broadcast_buffers=False)


def hybrid(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh(
        "cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
    )
    fully_shard(model, mesh=mesh)
    return model


def shard(model: torch.nn.Module) -> torch.nn.Module:
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def local(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found.detach()


def train(
    wrap: Callable[[torch.nn.Module], torch.nn.Module], watch: bool, strike: str = ""
) -> tuple[str, Observed | None]:
    """The hash of this rank's parameters in the end, and what was observed."""
    torch.manual_seed(0)
    bare = Net()
    model = wrap(bare)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(dist.get_rank())
    here = bool(strike) and dist.get_rank() == dist.get_world_size() - 1
    weight = dict(bare.named_parameters())["first.weight"]

    def steps(seen: Observed | None) -> None:
        for step in range(1, STEPS + 1):
            struck = here and step == STRUCK
            if struck and strike == "bit":
                local(weight).view(-1)[:1].view(torch.int32).bitwise_xor_(1 << 22)
            loss = model(torch.randn(6, 4, generator=generator)).pow(2).mean()
            loss.backward()
            if not (struck and strike == "skip"):
                optimizer.step()
            optimizer.zero_grad()
            if seen is not None:
                seen.end_step(loss, None)

    if watch:
        with observed((model, optimizer)) as seen:
            steps(seen)
        result: Observed | None = seen
    else:
        steps(None)
        result = None
    whole = hashlib.sha256()
    for parameter in model.parameters():
        whole.update(local(parameter).contiguous().numpy().tobytes())
    return whole.hexdigest(), result


def told(seen: Observed | None) -> dict[str, Any]:
    assert seen is not None
    seen.read()
    checks = [fields for kind, fields in seen.outbox._checks if kind is Checksums]
    return {
        "faults": seen.faults,
        "updated": [record.updated for record in seen.steps],
        "checks": [
            {
                "step": one["step"],
                "total": one["total"],
                "replicas": one["replicas"],
                "altered": one["altered"],
                "parameters": {v.name: v.value for v in one["values"] if not v.buffer},
                "buffers": {v.name: v.value for v in one["values"] if v.buffer},
            }
            for one in checks
        ],
    }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found: dict[str, Any] = {"rank": dist.get_rank()}
    for name, wrap in (("ddp", replicate), ("hsdp", hybrid), ("fsdp", shard), ("plain", plain)):
        without, _ = train(wrap, watch=False)
        weights, seen = train(wrap, watch=True)
        found[name] = told(seen) | {"same": weights == without}
    for strike in ("bit", "skip"):
        found[strike] = told(train(replicate, True, strike)[1])
    found["hsdp bit"] = told(train(hybrid, True, "bit")[1])
    print(json.dumps(found), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads need not be waited for


if __name__ == "__main__":
    main()
