"""A training script as a user of ``drill --script`` may have it: DDP, one call of ``attach``."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from rankscope.agent import attach


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--unattached", action="store_true")
    parser.add_argument("--corpus", default="there")
    given = parser.parse_args()
    if given.corpus != "there":
        raise FileNotFoundError(f"no corpus {given.corpus}")
    dist.init_process_group("gloo")
    layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if not given.unattached:
        attach(model, optimizer)
    loader = DataLoader(TensorDataset(torch.randn(1024, 64)), batch_size=32)
    step = 0
    while step < given.steps:
        for (batch,) in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == given.steps:
                break
    dist.barrier()  # it has no tensor that a thread of gloo's would have to let go of
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
