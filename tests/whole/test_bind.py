"""The hub on an address that is asked for: ranks, sentinel and clients all find it there."""

import socket
import sys
from pathlib import Path

import pytest

from support.runs import live_run

pytestmark = pytest.mark.processes

SCRIPT = """
import time
import torch
from rankscope.agent import attach

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
attach(model, optimizer)
while True:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_a_run_is_watched_over_the_address_it_is_bound_to(tmp_path: Path, address: str) -> None:
    """IPv6 too, which ZeroMQ does not speak unless it is told to."""
    command = [sys.executable, "-c", SCRIPT]
    with live_run(tmp_path / "home", command, "--bind", address) as run:
        run.wait_status(lambda s: s["ranks"] and s["ranks"][0]["step"] > 0, "its steps")
        run.wait_status(lambda s: s["ranks"][0]["process"] == "alive", "its sentinel's word")
