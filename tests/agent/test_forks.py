"""A forked child of a process that is watched is not watched itself, and is never held up."""

import subprocess
from pathlib import Path

import pytest

from support import warm
from support.listener import Listener
from support.sentinels import no_sentinel
from support.training import environment

pytestmark = pytest.mark.processes

PROGRAM = """
import os, sys, time, traceback
import torch
from rankscope.agent import attach
from rankscope.agent import registry
torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
excepthook, backward = sys.excepthook, torch.autograd.backward
agent = attach(model, optimizer)
session = registry._session
observer, sender = session.observer, session.sender

def train(steps, agent):
    for _ in range(steps):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        agent.end_step(loss=1.0)

def in_child(body):
    # The parent's thread may hold any lock at the fork: here it holds all of its own.
    held = sender._wake._cond, sender._flushed._cond
    for lock in held: lock.acquire()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    for lock in held: lock.release()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended: return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9); os.waitpid(pid, 0)
    return "hangs"

train(5, agent)

def trains_on():
    norms = []
    torch._foreach_norm = lambda *a, **k: norms.append(1)
    spent = agent.costs_s()
    train(5, agent)
    for _ in agent.batches([1, 2]): pass
    assert not observer.noted and not norms and agent.costs_s() == spent
    assert sys.excepthook is excepthook and torch.autograd.backward is backward

def ends():
    sys.excepthook(ValueError, ValueError("x"), None)
    observer.raised(ValueError("y"))
    observer.fault(observer.step, ValueError("z"))
    session.sender.flush()
    session.at_exit()
    agent.pause_observing(); agent.resume_observing()
    assert sys.excepthook is excepthook and torch.autograd.backward is backward
    with agent: pass
    agent.close()

def raises_inside():
    try:
        with agent: raise ValueError("w")
    except ValueError: pass

def attaches_anew():
    again = attach(model, optimizer)
    train(3, again)
    new = registry._session
    assert new is not session and new.sender.is_alive() and new.observer.on
    again.close()
    assert sys.excepthook is excepthook and torch.autograd.backward is backward

for body in (trains_on, ends, raises_inside, attaches_anew):
    print(body.__name__, in_child(body))
train(5, agent)
assert observer.on and sender.is_alive()
agent.close()
"""


def test_a_forked_child_does_nothing_of_the_agents(tmp_path: Path) -> None:
    """No note, no kernel and no hook there, no lock is waited for, and it may attach anew."""
    with Listener(tmp_path / "hub") as hub, no_sentinel(hub.run) as temporary:
        done = subprocess.run(
            [warm.python(), "-c", PROGRAM],
            env=environment({**hub.environ, "TMPDIR": str(temporary)}),
            capture_output=True,
            text=True,
            timeout=150,
        )
    assert done.returncode == 0, done.stderr
    bodies = ("trains_on", "ends", "raises_inside", "attaches_anew")
    assert done.stdout.split() == [word for body in bodies for word in (body, "0")], done.stderr
