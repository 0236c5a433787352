"""One rank of a run that a scheduler's signal stops. Takes options as JSON; prints one JSON line.

Ranks without a launcher of torch's: a port and their number are options.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from rankscope.agent import attach
from rankscope.agent.checkpoint import Checkpointer

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)
    torch.manual_seed(0)  # what is saved is to be alike on all ranks
    handled: list[int] = []
    if OPTIONS.get("handler"):
        signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
    if OPTIONS.get("ranks", 1) > 1:
        dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saver = Checkpointer(state={"model": model}, dir=OPTIONS["dir"])
    agent = attach(model, optimizer, checkpoint=saver, on_signal=[signal.SIGUSR1, "nonsense"])
    step = 0
    with agent:
        while True:
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if OPTIONS.get("ranks", 1) > 1:
                dist.all_reduce(torch.zeros(1))
            if not agent.end_step():
                break
            if step == 5:
                print("trains", flush=True)
            if step == OPTIONS.get("stuck_at"):
                print("stuck", flush=True)
                threading.Lock().acquire(timeout=300) and threading.Event().wait(300)
            time.sleep(0.01)
    assert agent.should_stop
    print(json.dumps({"step": step, "handled": handled}), flush=True)
    if dist.is_initialized():
        dist.barrier()
        time.sleep(0.2)
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    main()
