"""Which rank this process is. Pure functions of the environment and of what torch says."""

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple


class Identity(NamedTuple):
    rank: int
    world_size: int
    local_rank: int
    attempt: int
    """How often the launcher has restarted the ranks (torchelastic's count)."""


ALONE = Identity(0, 1, 0, 0)
"""A plain script: rank 0 of 1."""


def from_environ(environ: Mapping[str, str] = os.environ) -> Identity | None:
    """What a launcher such as torchrun has set; None without (or with nonsensical) values."""
    rank, world_size = _count(environ, "RANK"), _count(environ, "WORLD_SIZE")
    if rank is None or world_size is None or rank >= world_size:
        return None
    local_rank = _count(environ, "LOCAL_RANK")
    return Identity(
        rank,
        world_size,
        rank if local_rank is None else local_rank,
        attempt(environ),
    )


def from_torch(environ: Mapping[str, str] = os.environ) -> Identity | None:
    """What torch.distributed says once ``init_process_group`` has run; None before."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, world_size = int(distributed.get_rank()), int(distributed.get_world_size())
    local_rank = _count(environ, "LOCAL_RANK")
    return Identity(
        rank,
        world_size,
        rank if local_rank is None else local_rank,
        attempt(environ),
    )


def attempt(environ: Mapping[str, str] = os.environ) -> int:
    """How often the launcher has restarted the ranks; 0 where none says so."""
    return _count(environ, "TORCHELASTIC_RESTART_COUNT") or 0


def life(environ: Mapping[str, str] = os.environ) -> int:
    """The attempt where it is the same number on all ranks: on one node; elsewhere 0.

    Each node's launcher counts the failures of its own ranks: a restart because of another node's
    is none of them. So ranks of several nodes must not look for each other by this number.
    """
    world_size = _count(environ, "WORLD_SIZE")
    alone = world_size is not None and world_size == _count(environ, "LOCAL_WORLD_SIZE")
    return attempt(environ) if alone else 0


def decide(
    from_torch: Identity | None, from_environ: Identity | None, *, trained: bool
) -> Identity | None:
    """The identity, or None while it is open.

    torch's word goes first, then the launcher's. A process that has completed a step with neither
    (``trained``) is a plain script.
    """
    return from_torch or from_environ or (ALONE if trained else None)


def _count(environ: Mapping[str, str], name: str) -> int | None:
    try:
        value = int(environ[name])
    except (KeyError, ValueError):
        return None
    return value if value >= 0 else None
