"""What tests of numbers share."""

import sys
from collections.abc import Iterator

import pytest
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore


@pytest.fixture
def lone_group() -> Iterator[None]:
    """A world of one rank, without threads of its own; torch puts a hook of its own in place."""
    before = sys.excepthook
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
    sys.excepthook = before
