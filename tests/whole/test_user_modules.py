"""A user's own files never become ours, whatever they are called."""

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.runs import Run, belonging_to, environment, wait_until

pytestmark = pytest.mark.processes

SCRIPT = """
import sys, time
from pathlib import Path
import torch
from rankscope.agent import attach

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
attach(model, optimizer)
deadline = time.monotonic() + 250
while not Path(sys.argv[1]).exists() and time.monotonic() < deadline:
    model(torch.ones(2, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
"""

NAMES = ["signal", "queue", "json", "select", "zmq", "msgspec", "agent", "hub", "protocol", "tui"]


def test_modules_in_the_working_directory_are_not_taken_for_ours(tmp_path: Path) -> None:
    """Hub and sentinel start where a signal.py, a json.py and an agent.py lie about."""
    home = tmp_path / "home"
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "train.py"
    script.write_text(SCRIPT)
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in NAMES:
        (hostile / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')")
    stop = tmp_path / "stop"
    process = subprocess.Popen(
        [sys.executable, str(script), str(stop)],
        cwd=hostile,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        found = Run(home, process, tmp_path / "none").wait_status(
            lambda s: s["step"] > 0 and s["ranks"][0]["process"] == "alive",
            "a hub and a sentinel that know the rank",
        )
        assert found["ranks"][0]["pid"] == process.pid
        stop.touch()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        for other in belonging_to(home):
            with contextlib.suppress(psutil.Error):  # it has just ended
                other.kill()
    wait_until(lambda: not belonging_to(home), "nothing left")
