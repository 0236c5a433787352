"""``torch.compile`` block by block, with the backend that works here, the same on all ranks."""

import os
import shutil
import sys
from collections.abc import Iterable

import torch
from torch import nn

from rankscope.trainers.launch import Ranks

BACKENDS = ("inductor", "aot_eager")
"""Fast and in need of a C++ compiler; slow and in need of nothing. Beyond them is not to compile.
"""


def compile_blocks(blocks: Iterable[nn.Module], backend: str) -> None:
    """Compile the forward of each of ``blocks``, and with it its backward; ``off`` does nothing.

    Blocks alike share one compilation, and what is between them, hooks and collectives, runs as
    ever, under DDP and under FSDP2. So a first step takes one block's compilation and not the
    whole model's.
    """
    if backend == "off":
        return
    # It would split each block's graph once more, at the ends of DDP's buckets, so that gradients
    # are reduced before the whole model's backward is over; blocks already see to that.
    torch._dynamo.config.optimize_ddp = False
    for block in blocks:
        block.forward = torch.compile(block.forward, backend=backend)


def choose(wanted: str, device: torch.device, ranks: Ranks) -> tuple[str, str]:
    """The backend for ``--compile wanted`` and the words to say it in; a collective on ``ranks``.

    ``auto`` is inductor where there is a C++ compiler, else aot_eager. Every rank tries to compile
    something small; where that fails on one, all of them take the next simpler backend.
    """
    if wanted == "off":
        return "off", ""
    first, why = wanted, ""
    if wanted == "auto":
        first = "inductor" if compiler() else "aot_eager"
        why = "" if compiler() else ": there is no C++ compiler"
    for backend in BACKENDS[BACKENDS.index(first) :]:
        failure = attempt(backend, device)
        failed = int(ranks.sum(torch.tensor(int(bool(failure)))))
        if not failed:
            return backend, f"blocks compiled with {backend}{why}"
        why = f": {backend} failed{f' ({failure})' if failure else ' on another rank'}"
    return "off", f"nothing compiled{why}"


def compiler() -> str | None:
    """The C++ compiler that inductor would call, if it is there."""
    return shutil.which(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++"))


def attempt(backend: str, device: torch.device) -> str:
    """Compile and run a forward and a backward; returns what went wrong, in one line."""
    x = torch.ones(8, 8, device=device, requires_grad=True)
    try:
        compiled = torch.compile(lambda x: (x * torch.tanh(x)).sum(), backend=backend)
        compiled(x).backward()
    except Exception as error:  # noqa: BLE001 - compilers fail in many ways, none the run's end
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""
