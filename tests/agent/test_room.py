"""libzmq aborts a process that has no room for it: so it is not started there."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from rankscope.agent import room
from rankscope.protocol import messages as m
from support import warm
from support.listener import Listener
from support.sentinels import no_sentinel
from support.training import environment
from support.wire import wait_until

PROGRAM = """
import os, resource, sys, threading, time
import torch
from rankscope.agent import attach, registry
import rankscope.agent.sender, torch._dynamo
torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(agent=None):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()

train()
kind, spare, marker = sys.argv[1], int(sys.argv[2]), sys.argv[3]
limit = {"files": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_AS}[kind]
soft, hard = resource.getrlimit(limit)
if kind == "files":
    used = max(map(int, os.listdir("/proc/self/fd"))) + 1
else:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    spare <<= 20
resource.setrlimit(limit, (used + spare, hard))
attach(model, optimizer)
session = registry._session
looked = lambda: session is None or session.closed or session.sender._room_s > 0  # and found none
begun = time.monotonic()
while time.monotonic() < begun + 3 or not looked() and time.monotonic() < begun + 60: train()
print("trained", flush=True)
resource.setrlimit(limit, (soft, hard))
deadline = time.monotonic() + 150
while not os.path.exists(marker) and time.monotonic() < deadline:
    train()
    time.sleep(0.01)
    if registry._session is None or registry._session.closed: attach(model, optimizer)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "spare"), [("files", 3), ("files", 9), ("memory", 12), ("memory", 28), ("memory", 60)]
)
def test_a_process_without_room_trains_on_and_is_watched_later(
    kind: str, spare: int, tmp_path: Path
) -> None:
    """Neither too few files nor too little memory ends training; once there is room, it is seen."""
    marker = tmp_path / "seen"
    with Listener(tmp_path / "hub") as hub, no_sentinel(hub.run) as temporary:
        process = subprocess.Popen(
            [warm.python(), "-c", PROGRAM, kind, str(spare), str(marker)],
            env=environment(
                {**hub.environ, "TMPDIR": str(temporary), "RANK": "0", "WORLD_SIZE": "1"}
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: hub.of_kind(m.Beat) or process.poll() is not None, "a beat", 90)
        finally:
            marker.touch()
            out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert out == "trained\n"
    assert "training goes on unwatched" in err
    assert hub.of_kind(m.Beat)


def test_where_there_is_room_nothing_is_kept_of_the_look() -> None:
    """Every descriptor and thread that was taken is given back."""
    before = len(list(Path("/proc/self/fd").iterdir())), threading_count()
    assert room.lacking() is None
    # A thread is in the list a moment longer than whoever joins it waits.
    wait_until(
        lambda: (len(list(Path("/proc/self/fd").iterdir())), threading_count()) <= before,
        "all that was taken given back",
    )


def threading_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_what_lacks_is_said_with_the_limit_to_raise() -> None:
    """Too few descriptors are told by the name of the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 4, hard))
    try:
        assert "ulimit -n" in (room.lacking() or "")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
