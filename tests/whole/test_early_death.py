"""A rank that dies in its first moments is told with its cause: such deaths are the commonest."""

import signal
import sys
from pathlib import Path

import pytest

from support.runs import live_run

pytestmark = pytest.mark.processes

SCRIPT = '''
import os, signal, time
from pathlib import Path
import torch
from rankscope.agent import attach, nodedir

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
attach(model, optimizer)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()

def watched():
    """Whether the sentinel has read who this is, and opened what it reads next."""
    folder = nodedir.node_dir(os.environ["RANKSCOPE_RUN"])
    pid = nodedir.sentinel_lock_path(folder).read_text().split()[0]
    files = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    last = "schedstat" if Path("/proc/self/schedstat").exists() else "stat"
    return f"/proc/{os.getpid()}/{last}" in files

deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        if watched(): break
    except (OSError, IndexError): pass
    time.sleep(0.01)
'''

WAYS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exit 5": "os._exit(5)",
}


@pytest.mark.parametrize("cause", sorted(WAYS))
def test_a_death_in_the_first_moments_has_its_cause(tmp_path: Path, cause: str) -> None:
    """As soon as the launcher's sentinel, which is there before the first rank, has found it."""
    home = tmp_path / "home"
    with live_run(home, [sys.executable, "-c", SCRIPT + WAYS[cause]]) as run:
        code = run.process.wait(120)
        last = run.wait_status(lambda s: s["state"] == "failed" and s["verdict"], "the verdict")
        verdict = last["verdict"]
    expected = 128 + signal.Signals[cause] if cause.startswith("SIG") else 5
    assert code == expected
    assert verdict["kind"] == "rank-dead"
    assert verdict["ranks"] == [0]
    assert cause in verdict["headline"]
