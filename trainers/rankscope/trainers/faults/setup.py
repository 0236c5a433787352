"""One rank is set up differently from the others."""

import os

import torch
from torch.torch_version import TorchVersion

from rankscope.trainers.faults.hit import Struck

VARIABLE = "NCCL_PROTO=Simple"
VERSION = "2.8.1"


def environment(hit: Struck) -> None:
    if hit.here:
        hit.tell()
        name, _, value = (hit.spec.where or VARIABLE).partition("=")
        os.environ[name] = value


def library_version(hit: Struck) -> None:
    """torch says so itself; the code is the same, for a run with another would not be this one."""
    if hit.here:
        hit.tell()
        torch.__version__ = TorchVersion(hit.spec.where or VERSION)
