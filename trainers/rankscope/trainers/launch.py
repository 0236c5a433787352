"""Where this rank runs: its place in the job, its device, its process group, and how it refuses."""

import gc
import os
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (  # torch.distributed's own, but not exported
    HashStore,
    PrefixStore,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.rendezvous import rendezvous

from rankscope.protocol.exits import UserError
from rankscope.trainers import lives

REFUSAL_GRACE_S = 30.0
"""Longest that a silent rank waits for the one that says what is wrong."""

COME_S = 300.0
"""Longest that the ranks of other nodes are waited for, as torch waits for a store."""


@dataclass(frozen=True)
class Place:
    """This process among those the launcher started; one plain process is rank 0 of 1."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    launched: bool = False
    """Whether torchrun, or something that sets the same variables, started it."""

    @staticmethod
    def from_environment() -> "Place":
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return Place()
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return Place(
            rank=rank,
            local_rank=int(os.environ.get("LOCAL_RANK", rank)),
            world_size=world_size,
            local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", world_size)),
            launched=True,
        )


def choose_device(wanted: str, place: Place) -> torch.device:
    """The device of this rank for ``auto``, ``cpu`` or ``cuda``, one GPU for each rank.

    Raises :class:`UserError` when CUDA is asked for and there are too few devices; ``auto`` takes
    the CPU then.
    """
    gpus = torch.cuda.device_count() if wanted != "cpu" else 0
    if gpus >= place.local_world_size:
        return torch.device("cuda", place.local_rank)
    if wanted == "cuda":
        raise UserError(
            f"--device cuda: {gpus} CUDA devices for {place.local_world_size} ranks on this node; "
            "start fewer ranks or use --device cpu"
        )
    return torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """The data-parallel ranks and this one's place among them.

    Their number is that of the group or mesh the model is replicated or sharded over. ``group`` is
    None for a single process without a process group.
    """

    rank: int
    size: int
    group: "dist.ProcessGroup | None"

    def sum(self, values: Tensor) -> Tensor:
        """``values`` added up over the ranks, in place."""
        if self.group is not None:
            dist.all_reduce(values, group=self.group)
        return values

    def most(self, values: Tensor) -> Tensor:
        """The largest of ``values`` of any rank, element by element, in place."""
        if self.group is not None:
            dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.group)
        return values


def everyone(place: Place) -> Ranks:
    """All ranks of the job, in the default process group where there is one."""
    group = dist.group.WORLD if dist.is_initialized() else None
    return Ranks(place.rank, place.world_size, group)


def store_of_life(place: Place) -> PrefixStore | None:
    """The launcher's store, below a prefix for each life of the ranks; None where torch makes one.

    torchrun's own store outlives the ranks, with the addresses of those before in it: a restarted
    rank would try to connect to what is gone. On one node its count of restarts tells the lives
    apart. Raises :class:`UserError` when the ranks of other nodes do not come.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    one_node = place.local_world_size == place.world_size
    if one_node and attempt == "0":
        return None
    store, _, _ = next(rendezvous("env://"))
    if one_node:
        return PrefixStore(f"attempt-{attempt}", store)
    try:
        life = lives.agree(store, place.rank, place.world_size, COME_S)
    except TimeoutError as error:
        raise UserError(f"{error}; see whether all nodes have started their ranks") from None
    return PrefixStore(f"life-{life}", store)


@contextmanager
def process_group(place: Place, device: torch.device, when_alone: bool) -> Iterator[None]:
    """The default process group, from the launcher's variables.

    A plain process has none, or one of itself alone ``when_alone``.

    Beside NCCL there is gloo for what the ranks tell each other from CPU memory, such as token
    counts: no device has to be waited for. After an error nothing is taken down, for the group may
    have an operation under way that never ends, and the error must not wait for it. A
    :class:`UserError` is different: all ranks raise it, having compared notes.
    """
    if not place.launched and not when_alone:
        yield
        return
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        rank=place.rank,
        world_size=place.world_size,
        store=store_of_life(place) if place.launched else HashStore(),
        device_id=device if on_gpu else None,
    )
    try:
        yield
    except UserError:
        leave()
        raise
    leave()


def leave() -> None:
    """Take the default process group down on all ranks together, its threads included.

    A thread of gloo that drops the last reference to a tensor while the interpreter ends aborts the
    process. The group's destructor waits for its threads, but nobody may hold the group by then:
    not a model (DDP's is in cycles of references), nor a mesh, which DTensor's caches keep for
    good. The barrier, which has no tensor, goes through after everything before it.
    """
    dist.barrier()
    gc.collect()
    for found in gc.get_objects():
        if type(found) is DeviceMesh:
            getattr(found, "_pg_registry", {}).clear()  # there is no public way
    dist.destroy_process_group()


def check_same_text(text: bytes) -> None:
    """Raise :class:`UserError` on all ranks when their texts differ, as they may across nodes.

    Ranks with texts of different length would not agree on where an epoch ends, and hang.
    """
    if not dist.is_initialized():
        return
    digest = torch.tensor([zlib.crc32(text), len(text)])
    extremes = torch.cat([digest, -digest])
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    if not torch.equal(extremes[:2], -extremes[2:]):
        raise UserError("the nodes have different texts; give all of them the same --text")


def refuse(program: str, error: UserError, place: Place) -> int:
    """Say once on each node what is wrong; returns the exit code, the same on every rank.

    A launcher ends all ranks as soon as one has failed. The silent ones therefore wait until they
    are told to end, or the one that speaks might be ended before it could.
    """
    if place.local_rank == 0:
        print(f"{program}: {error}", file=sys.stderr, flush=True)
        return int(error.exit_code)

    def leave(_signal: int, _frame: FrameType | None) -> None:
        os._exit(error.exit_code)

    signal.signal(signal.SIGTERM, leave)
    time.sleep(REFUSAL_GRACE_S)
    return int(error.exit_code)
