"""One of two ranks of test_fsdp1: a few steps of an FSDP1 model, unwatched, then watched.

Every rank prints one JSON line: its rank, both digests of the weights, the norm it saw last.
"""

import hashlib
import json
import warnings
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from rankscope.agent.sender import Sender
from rankscope.trainers.launch import Place, process_group
from rankscope.trainers.model import Block, Shape, Transformer, initialise
from rankscope.trainers.watch import watch

STEPS = 5


def train(how: str, place: Place) -> tuple[str, float]:
    """The digest of the weights and the last gradient norm, watched as ``how`` says."""
    model = Transformer(Shape(seq_len=8, layers=2, dim=32, heads=4))
    initialise(model, 2, seed=0)
    sharded = FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu")
    )
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=1e-3)
    with watch(how, sharded, optimizer, "fsdp1"):
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(10 * step + place.rank)
            tokens = torch.randint(0, 256, (4, 9), generator=generator)
            logits = sharded(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            norm: Any = sharded.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
    with FullyShardedDataParallel.summon_full_params(sharded):
        digest = hashlib.sha256()
        for parameter in sharded.parameters():
            digest.update(parameter.detach().clone().numpy().tobytes())
    return digest.hexdigest(), float(norm)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)  # FSDP1's own, of its age
    here = Place.from_environment()
    with process_group(here, torch.device("cpu"), when_alone=False):
        unwatched, _ = train("none", here)
        Sender.end.__defaults__ = (30.0,)  # a busy machine may not get it all out in 200 ms
        watched, norm = train("plain", here)
        found = {"rank": here.rank, "unwatched": unwatched, "watched": watched, "norm": norm}
        print(json.dumps(found) + "\n", end="", flush=True)  # in one piece: ranks share a pipe
