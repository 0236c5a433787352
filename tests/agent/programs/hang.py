"""A training run on gloo in which one rank does something that makes the others wait.

Ends when the file ``until`` appears, or by itself after some minutes.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankscope.agent import attach

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
UNTIL = Path(OPTIONS["until"])
LONGEST_S = 200.0


def wait_for_the_end() -> None:
    began = time.monotonic()
    # Asked in C: whenever it is looked at, this function is the innermost.
    while not os.access(UNTIL, os.F_OK) and time.monotonic() - began < LONGEST_S:
        time.sleep(0.02)  # the rank is stuck here


def other_size() -> None:
    dist.all_reduce(torch.ones(4096, dtype=torch.float64))  # the others have eight numbers


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    threading.Thread(target=threading.Event().wait, name="helper", daemon=True).start()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    agent = attach(model, optimizer)
    fault = OPTIONS.get("fault") if rank == OPTIONS.get("rank", 1) else None
    for step in range(1, 100_000):
        numbers = torch.ones(8)
        if step == OPTIONS.get("step", 8):
            if fault == "wait":
                wait_for_the_end()
            elif fault == "size":
                time.sleep(0.3)
                other_size()
            elif fault == "expect":
                with agent.expect("spring cleaning"):
                    wait_for_the_end()
            elif fault == "raise":
                raise ValueError("this rank has had enough")
        dist.all_reduce(numbers)
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        agent.end_step(loss=loss)
        if OPTIONS.get("pace_s"):
            time.sleep(OPTIONS["pace_s"])
        enough = torch.tensor(float(UNTIL.exists()))
        dist.all_reduce(enough, op=dist.ReduceOp.MAX)
        if enough:
            break
    dist.barrier()  # see train.py
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
