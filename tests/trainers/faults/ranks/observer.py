"""What a rank of ``server.py`` notes down about itself: values and collectives, by plain hooks.

It is placed after the faults and knows nothing of them, nor of the agent. One JSON line a step.
"""

import hashlib
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import rankscope.trainers.program as program
from rankscope.trainers.faults.points import bare

POLL_S = 0.05


def watch(place: Path, rank: int) -> None:
    """Have ``train`` observed, whoever calls it."""
    original: Any = program.__dict__["train"]
    for name in ("all_reduce", "broadcast", "all_gather"):
        listen(place, rank, name)
    threading.Thread(target=record, args=(place, rank), daemon=True).start()

    def train(config: Any, parallel: Any, optimizer: Any, *others: Any) -> None:
        Observer(place / f"{rank}.steps", bare(parallel.model), optimizer)
        original(config, parallel, optimizer, *others)

    setattr(program, "train", train)  # noqa: B010 - it is imported there, not defined


def record(place: Path, rank: int) -> None:
    """Write down the flight recorder's entries again and again: the rank may be killed."""
    dump: Any = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json")  # noqa: B009
    while True:
        entries = json.loads(dump(includeCollectives=True)).get("entries", [])
        names = [
            [e["profiling_name"], e["input_sizes"], e["process_group"][0], bool(e["retired"])]
            for e in entries
        ]
        new = place / f"{rank}.new"
        new.write_text(json.dumps(names))
        new.replace(place / f"{rank}.collectives")
        time.sleep(POLL_S)


def listen(place: Path, rank: int, name: str) -> None:
    """Write down each call of ``torch.distributed.name`` before it is made, and its caller."""
    original = getattr(dist, name)

    def called(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code.co_name
        shown = args[0] if isinstance(tensor, list) else tensor
        with (place / f"{rank}.calls").open("a") as file:
            print(json.dumps([caller, name, list(shown.shape), str(shown.dtype)]), file=file)
        return original(tensor, *args, **kwargs)

    setattr(dist, name, called)


def called_in(place: Path, rank: int) -> list[list[Any]]:
    """Caller, name, shape and dtype of each call that Python code made."""
    file = place / f"{rank}.calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def recorded_in(place: Path, rank: int) -> list[list[Any]]:
    """Name, input sizes, group and whether it ended, of each collective of the rank."""
    file = place / f"{rank}.collectives"
    found: list[list[Any]] = json.loads(file.read_text()) if file.exists() else []
    return found


class Observer:
    """Writes what a step had, at the next one's begin and at the end of the optimizer's step."""

    def __init__(self, path: Path, model: nn.Module, optimizer: Any) -> None:
        self.file = path.open("w")
        self.model = model
        self.optimizer = optimizer
        self.now: dict[str, Any] = {}
        self.fresh()
        model.register_forward_pre_hook(self.on_begin)
        for name, module in model.named_modules():
            if name:
                self.place(name, module)
        model.register_forward_hook(self.on_logits)
        self.wrap(torch.autograd, "backward", self.before_backward, "backward_s")
        self.wrap(torch.nn.utils, "clip_grad_norm_", self.before_clip, "clip_s")
        self.wrap(optimizer, "step", lambda *_: None, "optimizer_s")
        self.wrap(optimizer, "zero_grad", lambda *_: self.finish(), "clear_s")

    def wrap(self, owner: Any, name: str, before: Any, seconds: str) -> None:
        """Call ``before`` first, and note how long ``owner.name`` takes."""
        original = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            before(*args)
            began_s = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.now[seconds] = time.perf_counter() - began_s

        setattr(owner, name, wrapper)

    def before_backward(self, tensors: Any, *_: Any) -> None:
        loss = tensors if isinstance(tensors, Tensor) else tensors[0]
        self.now["losses"].append(str(float(loss.detach())))

    def before_clip(self, *_: Any) -> None:
        self.now["reduced_bad"] = self.named_bad(lambda p: p.grad)

    def on_logits(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.now["forward_s"] = time.perf_counter() - self.forward_s

    def fresh(self) -> None:
        self.now = {"bad_in": 0, "outputs": [], "losses": [], "gradients": [], "bad_parameters": []}
        self.began_s = self.forward_s = time.perf_counter()

    def on_begin(self, module: nn.Module, args: Any) -> None:
        self.now["before_forward_s"] = time.perf_counter() - self.began_s
        self.forward_s = time.perf_counter()
        self.now["bad_in"] += int(args[0].is_floating_point() and not args[0].isfinite().all())
        if not self.now["losses"]:
            self.now["bad_parameters"] = self.named_bad(lambda p: p)
            self.now["batch"] = digest([args[0].float()])
            self.now["parameters"] = digest(list(self.model.parameters()))

    def place(self, name: str, module: nn.Module) -> None:
        def on_output(owner: nn.Module, args: Any, output: Tensor) -> None:
            if torch.is_grad_enabled() and not output.isfinite().all():
                inputs_good = all(a.isfinite().all() for a in args if a.is_floating_point())
                self.now["outputs"].append([name, len(self.now["losses"]) + 1, bool(inputs_good)])

        def on_forward(owner: nn.Module, args: Any) -> None:
            if not torch.is_grad_enabled():
                return
            for attribute, _ in owner.named_parameters(recurse=False):
                self.place_gradient(f"{name}.{attribute}", getattr(owner, attribute))

        module.register_forward_hook(on_output)
        module.register_forward_pre_hook(on_forward)

    def place_gradient(self, name: str, parameter: Any) -> None:
        handles: list[Any] = []

        def on_gradient(gradient: Tensor) -> None:
            handles.pop().remove()
            largest = str(float(gradient.abs().max()))
            self.now["gradients"].append([name, len(self.now["losses"]), largest])

        handles.append(parameter.register_hook(on_gradient))

    def named_bad(self, value: Any) -> list[str]:
        return [
            name
            for name, parameter in self.model.named_parameters()
            if self.bad([value(parameter)])
        ]

    def bad(self, tensors: Any) -> bool:
        return any(t is not None and not local(t).isfinite().all() for t in tensors)

    def finish(self) -> None:
        state = self.optimizer.state
        self.now["bad_state"] = [
            name
            for name, p in self.model.named_parameters()
            if self.bad(v for v in state.get(p, {}).values() if isinstance(v, Tensor))
        ]
        self.now["updated"] = digest(list(self.model.parameters()))
        self.now["seed"] = torch.initial_seed()
        self.now["torch"] = str(torch.__version__)
        self.now["resident_kb"] = resident_kb()
        self.now["environment"] = os.environ.get("NCCL_PROTO")
        self.now["limit_bytes"] = resource.getrlimit(resource.RLIMIT_AS)[0]
        print(json.dumps(self.now), file=self.file, flush=True)
        self.fresh()


def local(tensor: Any) -> Tensor:
    part = tensor.detach()
    found: Tensor = part.to_local() if hasattr(part, "to_local") else part
    return found


def digest(tensors: list[Any]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        # Cloned: numpy would keep a sharded parameter's memory from being given back.
        found.update(local(tensor).clone().numpy().tobytes())
    return found.hexdigest()


def resident_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
