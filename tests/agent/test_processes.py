"""Agents in real training processes, heard by a bare listening end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.agent import nodedir
from rankscope.protocol import messages as m
from support import warm
from support.listener import Listener
from support.ports import free_port
from support.sentinels import no_sentinel
from support.training import Ended, command, environment, finish, run, start
from support.wire import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Listener]:
    """A listening end; the node directory is this test's own and its sentinels end with it."""
    with Listener(tmp_path / "hub", run=f"run-{os.getpid()}-{tmp_path.name}"[:60]) as listener:
        yield listener


@pytest.fixture
def environ(hub: Listener) -> Iterator[dict[str, str]]:
    """Leads agents to ``hub``; the sentinel's lock is held, so that none is started."""
    with no_sentinel(hub.run) as temporary:
        yield {**hub.environ, "TMPDIR": str(temporary)}


def fine(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended


def run_heard(hub: Listener, environ: dict[str, str], ranks: int = 0, /, **options: Any) -> Ended:
    """Run ``train.py``, and let no rank end before each was heard of.

    A process that ends sooner has 200 ms to get out what it has to say, which a busy machine may
    not give it.
    """
    marker = hub.folder / "heard"
    process = start("train.py", environ, ranks, until=str(marker), **options)
    try:
        expected = options.get("heard", options.get("spawn", ranks or 1))
        wait_until(
            lambda: len({one.rank for one in hub.of_kind(m.Beat) if one.step}) >= expected,
            "word of every rank",
            120,
        )
    finally:
        marker.touch()
        ended = finish(process)
    hub.heard_out()
    return ended


def check_sequence(hub: Listener, rank: int) -> None:
    """Messages of a rank are numbered without a gap, and hello is the first."""
    ours = [one for one in hub.all() if getattr(one, "rank", None) == rank]
    assert [one.seq for one in ours] == list(range(1, len(ours) + 1))  # type: ignore[attr-defined]
    assert isinstance(ours[0], m.Hello)


def test_a_plain_script_with_the_result_discarded(hub: Listener, environ: dict[str, str]) -> None:
    """Everything but a boundary is told of a script that merely calls attach."""
    ended = fine(run_heard(hub, environ, steps=6, clip=True, workers=2))
    (line,) = ended.lines
    steps = hub.steps()
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    assert [step.loss for step in steps.values()] == pytest.approx(line["losses"])
    assert [step.grad_norm for step in steps.values()] == pytest.approx(line["norms"])
    assert all(step.microbatches == 1 for step in steps.values())
    assert all(step.data_s > 0 for step in steps.values())
    hello = hub.of_kind(m.Hello)[-1]
    assert (hello.rank, hello.world_size, hello.attempt, hello.pid) == (0, 1, 0, line["pid"])
    assert (hello.name, hello.trainer, hello.device) == ("train", "plain", "cpu")
    assert not hello.boundary
    assert hello.facts["torch"]
    goodbye = hub.all()[-1]
    assert isinstance(goodbye, m.Goodbye)
    assert (goodbye.reason, goodbye.step) == ("finished", 6)
    # It is told when it was read, which is not at every look.
    memory = next(beat.memory for beat in reversed(hub.of_kind(m.Beat)) if beat.memory)
    assert memory.peak_resident_bytes >= memory.resident_bytes > 10_000_000
    assert memory.allocated_bytes is None
    check_sequence(hub, 0)
    # Registered with the node's sentinel.
    node = Path(environ["TMPDIR"]) / f"rankscope-{os.geteuid()}" / hub.run
    (registration,) = nodedir.read_registrations(node)
    assert (registration.pid, registration.attempt, registration.rank) == (line["pid"], 0, 0)


@pytest.mark.parametrize("form", ["with", "end_step"])
def test_a_loop_with_a_boundary(form: str, hub: Listener, environ: dict[str, str]) -> None:
    """end_step brings tokens and the loss it was given; with reports the end; spawned workers."""
    options = {"workers": 1, "context": "spawn"} if form == "with" else {}
    ended = fine(run_heard(hub, environ, steps=4, form=form, start_step=10, **options))
    steps = hub.steps()
    assert list(steps) == [11, 12, 13, 14]
    assert [step.loss for step in steps.values()] == pytest.approx(ended.lines[0]["losses"])
    assert {step.tokens for step in steps.values()} == {8}
    hello = hub.of_kind(m.Hello)[-1]
    assert hello.boundary
    assert hello.start_step == 10
    assert hub.of_kind(m.Goodbye)[0].step == 14


@pytest.mark.parametrize("attach", ["before", "twice"])
def test_ddp_under_torchrun(attach: str, hub: Listener, environ: dict[str, str]) -> None:
    """Two ranks tell of the same steps and groups, attached before or after the group is made."""
    fine(run_heard(hub, environ, 2, steps=5, ddp=True, attach=attach))
    for rank in (0, 1):
        assert list(hub.steps(rank)) == [1, 2, 3, 4, 5]
        hello = hub.of_rank(m.Hello, rank)[-1]
        assert (hello.world_size, hello.local_rank, hello.trainer) == (2, rank, "ddp")
        group = hub.of_rank(m.Groups, rank)[-1].groups[0]
        assert (group.backend, group.size, group.ranks) == ("gloo", 2, (0, 1))
        statuses = [one for beat in hub.of_rank(m.Beat, rank) for one in beat.collectives]
        assert statuses[-1].group == group.name
        assert statuses[-1].last_enqueued >= 5  # one bucket a step
        assert hub.of_rank(m.Goodbye, rank)[-1].reason == "finished"
        check_sequence(hub, rank)
    norms = [[step.grad_norm for step in hub.steps(rank).values()] for rank in (0, 1)]
    # Of the reduced gradient, so the same on all ranks; a slow machine computes it less often.
    pairs = [pair for pair in zip(*norms, strict=True) if None not in pair]
    assert pairs
    assert all(one == other for one, other in pairs)


def test_attached_on_one_rank_only(hub: Listener, environ: dict[str, str]) -> None:
    """The attached rank is heard, the other is not, and nobody waits for anybody."""
    fine(run_heard(hub, environ, 2, steps=3, ddp=True, only_rank=1, heard=1))
    assert {one.rank for one in hub.of_kind(m.Hello)} == {1}
    assert list(hub.steps(1)) == [1, 2, 3]


def test_spawned_ranks_without_a_launcher(hub: Listener, environ: dict[str, str]) -> None:
    """mp.spawn sets no RANK: the rank is torch's own, also when attached before it knew it."""
    port = free_port()
    fine(run_heard(hub, environ, spawn=2, port=port, ddp=True, steps=3, attach_early=True))
    for rank in (0, 1):
        assert list(hub.steps(rank)) == [1, 2, 3]
        assert hub.of_rank(m.Hello, rank)[-1].world_size == 2
        assert hub.of_rank(m.Goodbye, rank)[-1].reason == "finished"


def test_an_exception_in_a_spawned_rank_is_told(hub: Listener, environ: dict[str, str]) -> None:
    """multiprocessing catches it before any hook sees it; it is found at the exit."""
    port = free_port()
    options = {"end": "raise", "end_at": 2, "wait_at": 2}
    ended = run_heard(hub, environ, spawn=1, port=port, ddp=True, steps=3, **options)
    assert ended.code != 0
    (raised,) = hub.of_kind(m.Raised)
    assert (raised.type, raised.message) == ("ValueError", "no such token")


def test_the_weights_are_bitwise_the_same(hub: Listener, environ: dict[str, str]) -> None:
    """DDP on two ranks: attached, attached with RANKSCOPE=off, and not attached at all."""
    ways = ("none", "off", "after")
    ended = fine(run_heard(hub, environ, 2, steps=6, ddp=True, clip=True, ways=ways))
    for rank, line in enumerate(ended.lines):
        assert [one["way"] for one in line["before"]] == ["none", "off"]
        assert {one["weights"] for one in line["before"]} == {line["weights"]}
        assert all(one["modules"] == [] for one in line["before"])
        assert line["modules"] != []
        assert list(hub.steps(rank)) == [1, 2, 3, 4, 5, 6]  # of the last way alone
        check_sequence(hub, rank)


@pytest.mark.parametrize(
    ("form", "how", "code", "reported", "reason"),
    [
        ("plain", "raise", 1, "ValueError", "exception"),
        ("plain", "hook_replaced", 1, "ValueError", "exception"),
        ("plain", "interrupt", -signal.SIGINT, "KeyboardInterrupt", "exception"),
        ("plain", "exit", 3, None, "finished"),
        ("plain", "os_exit", 9, None, None),
        ("with", "raise", 1, "ValueError", "exception"),
        ("with", "exit", 3, "SystemExit", "exception"),
    ],
)
def test_how_a_run_ends(
    form: str,
    how: str,
    code: int,
    reported: str | None,
    reason: str | None,
    hub: Listener,
    environ: dict[str, str],
) -> None:
    """The exception that ends a run arrives, with its place; the exit code is untouched."""
    ended = run_heard(hub, environ, steps=9, end=how, end_at=4, wait_at=4, form=form)
    assert ended.code in (code, 130 if how == "interrupt" else code)
    raised = hub.of_kind(m.Raised)
    assert [one.type for one in raised] == ([reported] if reported else [])
    if raised:
        assert raised[0].source.startswith("train.py:")
        assert raised[0].source.endswith("in end")
        assert raised[0].step in (3, 4)
        assert not raised[0].from_peer
        assert "Traceback" in raised[0].traceback
    assert [one.reason for one in hub.of_kind(m.Goodbye)] == ([reason] if reason else [])
    if how == "raise":
        assert "ValueError: no such token" in ended.err  # the user's traceback as ever


def test_without_a_hub_training_goes_on(tmp_path: Path) -> None:
    """An address where nobody listens, and a key that is not there: all is as ever."""
    with Listener(tmp_path / "gone", run="run-gone") as gone:
        environ = {**gone.environ, "TMPDIR": str(tmp_path)}
    plain = fine(run("train.py", environ, steps=4, attach="none")).weights
    assert fine(run("train.py", environ, steps=4)).weights == plain
    missing = {**environ, "RANKSCOPE_AGENT_KEY": str(tmp_path / "none.json")}
    ended = fine(run("train.py", missing, steps=4))
    assert ended.weights == plain
    assert "Traceback" not in ended.err


def test_a_hub_that_dies_and_comes_back(
    hub: Listener, environ: dict[str, str], tmp_path: Path
) -> None:
    """Steps made meanwhile arrive later, numbers go on, and the weights are those of ever."""
    marker = tmp_path / "enough"
    options: dict[str, Any] = {"steps": 100, "pace_s": 0.03, "until": str(marker)}
    process = start("train.py", environ, **options)
    try:
        wait_until(lambda: len(hub.steps()) >= 3, "three steps")
        hub.stop()
        before = len(hub.all())
        last = max(hub.steps())
        hub.start()
        wait_until(lambda: len(hub.all()) > before, "word after the hub came back")
        hub.reply(m.WhoAreYou(0))
        hellos = len(hub.of_kind(m.Hello))
        wait_until(lambda: len(hub.of_kind(m.Hello)) > hellos, "a new hello")
        wait_until(lambda: max(hub.steps()) == 100, "the last step")
        assert last < 100
    finally:
        marker.touch()
        ended = finish(process)
    fine(ended)
    hub.heard_out()
    assert set(range(last + 1, 101)) <= set(hub.steps())
    numbers = [one.seq for one in hub.all() if isinstance(one, m.FromRank)]
    assert numbers == sorted(set(numbers))


def test_a_fault_in_a_probe_is_told_once(
    hub: Listener, environ: dict[str, str], tmp_path: Path
) -> None:
    """One message names the probe; training ends with the same weights."""
    plain = fine(run("train.py", environ, steps=4, attach="none")).weights
    (tmp_path / "broken.py").write_text(
        "import runpy, sys\n"
        "from rankscope.agent.probes.memory import MemoryProbe\n"
        "from rankscope.agent.probes.backward import Backward\n"
        "def broken(*args): raise OSError('no luck')\n"
        "MemoryProbe.read = Backward.on_end = broken\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    marker = tmp_path / "told"
    words = command("train.py", steps=4, until=str(marker))
    words.insert(1, str(tmp_path / "broken.py"))
    process = subprocess.Popen(
        words,
        env=environment(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(hub.of_kind(m.ProbeFault)) >= 2, "word of both faults")
    finally:
        marker.touch()
        ended = finish(process)
    assert fine(ended).weights == plain
    faults = hub.heard_out().of_kind(m.ProbeFault)
    assert sorted((one.probe, one.error) for one in faults) == [
        ("backward", "OSError: no luck"),
        ("memory", "OSError: no luck"),
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"tokens": 2**70},
        {"loss": 10**400},
        {"name": "x\udcff", "tokens": float("nan")},
        {"name": 5, "start_step": 2**65},
        {"start_step": "abc"},
    ],
)
def test_odd_values_silence_no_rank(
    values: dict[str, Any], hub: Listener, environ: dict[str, str]
) -> None:
    """Steps and goodbye arrive whatever attach and end_step were given."""
    program = (
        "import torch\n"
        "from rankscope.agent import attach\n"
        "from rankscope.agent.sender import Sender\n"
        "Sender.end.__defaults__ = (30.0,)\n"  # a busy machine may not get it out in 200 ms
        "model = torch.nn.Linear(4, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"values = {values!r}\n".replace(": nan", ": float('nan')")
        + "first = {k: v for k, v in values.items() if k in ('name', 'start_step')}\n"
        "with attach(model, optimizer, **first) as agent:\n"
        "    for _ in range(3):\n"
        "        model(torch.ones(1, 4)).sum().backward()\n"
        "        optimizer.step()\n"
        "        agent.end_step(loss=values.get('loss', 1.0), tokens=values.get('tokens'))\n"
        "    input()\n"
    )
    process = subprocess.Popen(
        [warm.python(), "-c", program],
        env=environment(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(hub.steps()) == 3, "three steps")
    finally:
        err = process.communicate("\n", timeout=120)[1]
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert hub.heard_out().of_kind(m.Goodbye)


def test_the_phase_before_the_end_is_told(hub: Listener, environ: dict[str, str]) -> None:
    """Before it says that it ended, the rank says what it was doing."""
    ended = run_heard(hub, environ, steps=9, end="exit", end_at=4, wait_at=4, form="with")
    assert ended.code == 3
    last = [one for one in hub.of_kind(m.Beat) if one.phase != m.Phase.ENDED][-1]
    assert (last.phase, last.step) == (m.Phase.OTHER, 4)
    assert isinstance(hub.all()[-1], m.Goodbye)


def test_importing_the_agent_imports_no_torch() -> None:
    """Neither does attach when it is switched off."""
    program = (
        "import sys, rankscope.agent as a\n"
        "agent = a.attach(None)\n"
        "with agent:\n"
        "    for _ in agent.batches([1]): agent.end_step(loss=1.0, tokens=2)\n"
        "agent.close()\n"
        "print('torch' in sys.modules, 'zmq' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment({"RANKSCOPE": "off"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["False", "False"]


def test_json_lines_are_read() -> None:
    """The helper that reads programs' output is not fooled by other lines."""
    line = json.dumps({"rank": 1, "weights": "x"})
    assert Ended(0, f"noise\n{line}\n", "").weights == ["x"]
