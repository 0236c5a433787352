"""Real runs: that they learn, repeat themselves, agree with each other, and end as they should."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.trainers.launch import Place
from support import warm
from support.ports import free_port

SMALL = ("--layers", "2", "--dim", "64", "--seq-len", "64", "--attach", "none")
TWELVE = (*SMALL, "--steps", "12")

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def two_ranks(history: Callable[..., Any]) -> list[dict[str, float]]:
    """Twelve steps of two DDP ranks with loader workers."""
    run: list[dict[str, float]] = history("ddp", *TWELVE, "--workers", "1", ranks=2)
    return run


def losses(run: list[dict[str, float]]) -> list[float]:
    return [step["loss"] for step in run]


def test_two_ranks_learn(two_ranks: list[dict[str, float]]) -> None:
    """Every step is there, and the last loss is well below that of guessing."""
    assert [step["step"] for step in two_ranks] == list(range(1, 13))
    assert losses(two_ranks)[0] > 5.3
    assert losses(two_ranks)[-1] < 4.3


def test_the_same_seed_gives_the_same_run_to_the_bit(
    two_ranks: list[dict[str, float]], history: Callable[..., Any]
) -> None:
    """Also without loader workers: they change who reads, not what is read."""
    assert history("ddp", *TWELVE, ranks=2) == two_ranks


def test_one_plain_process_has_the_same_losses(
    two_ranks: list[dict[str, float]], history: Callable[..., Any]
) -> None:
    """The same global batches give the same curve within rounding, whoever computes it."""
    alone = history("ddp", *TWELVE, "--batch-size", "16")
    assert losses(alone) == pytest.approx(losses(two_ranks), rel=1e-3)
    assert [s["tokens"] for s in alone] == [s["tokens"] for s in two_ranks]


@pytest.fixture(scope="module")
def two_sharded(history: Callable[..., Any]) -> list[dict[str, float]]:
    """The same twelve steps of two FSDP2 ranks."""
    run: list[dict[str, float]] = history("fsdp2", *TWELVE, ranks=2)
    return run


def test_sharded_ranks_have_the_same_losses(
    two_ranks: list[dict[str, float]], two_sharded: list[dict[str, float]]
) -> None:
    """FSDP2 computes what DDP computes, and the gradient's norm over all shards is the same."""
    assert losses(two_sharded) == pytest.approx(losses(two_ranks), rel=1e-4)
    norms = [s["norm"] for s in two_ranks]
    assert [s["norm"] for s in two_sharded] == pytest.approx(norms, rel=1e-3)


def test_the_sharding_trainer_runs_as_one_plain_process(
    two_ranks: list[dict[str, float]], history: Callable[..., Any]
) -> None:
    """Alone it makes a process group of itself, and has the same losses."""
    alone = history("fsdp2", *TWELVE, "--batch-size", "16")
    assert losses(alone) == pytest.approx(losses(two_ranks), rel=1e-3)


@pytest.mark.parametrize("attach", ["full", "plain"])
def test_being_watched_changes_no_bit(
    two_ranks: list[dict[str, float]], history: Callable[..., Any], attach: str
) -> None:
    """Losses and gradient norms with the agent are those without, to the last bit."""
    assert history("ddp", *TWELVE, "--attach", attach, ranks=2, says="watching") == two_ranks


@pytest.mark.parametrize("attach", ["full", "plain"])
def test_being_watched_changes_no_bit_of_sharded_ranks(
    two_sharded: list[dict[str, float]], history: Callable[..., Any], attach: str
) -> None:
    """FSDP2 too, where recomputed blocks change no bit either."""
    options = ("--attach", attach, "--recompute", "selective")
    assert history("fsdp2", *TWELVE, *options, ranks=2, says="watching") == two_sharded


def test_looking_for_unused_parameters_finds_none(
    two_ranks: list[dict[str, float]], history: Callable[..., Any]
) -> None:
    """DDP says that the search is in vain, and computes the same, in smaller buckets too."""
    options = ("--find-unused-parameters", "--bucket-mb", "0.05")
    says = "did not find any unused parameters"
    assert history("ddp", *TWELVE, *options, ranks=2, says=says) == two_ranks


def test_uneven_ranks_have_the_losses_of_one(history: Callable[..., Any]) -> None:
    """Epoch after epoch, ranks that run out join the others; one process has the same updates."""
    options = (*SMALL, "--steps", "9", "--text-bytes", "3500", "--uneven", "join")
    two = history("fsdp2", *options, "--batch-size", "4", "--accumulate", "2", ranks=2)
    one = history("ddp", *options, "--batch-size", "8", "--accumulate", "2")
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)
    assert [s["tokens"] for s in two] == [s["tokens"] for s in one]
    assert len({s["tokens"] for s in two}) > 1


def test_accumulated_microbatches_have_the_same_losses(
    two_ranks: list[dict[str, float]], history: Callable[..., Any]
) -> None:
    """Two microbatches of half the size are one update of the whole."""
    halves = history("ddp", *TWELVE, "--batch-size", "4", "--accumulate", "2", ranks=2)
    assert losses(halves) == pytest.approx(losses(two_ranks), rel=1e-3)


def test_progress_is_a_few_plain_lines(launch: Callable[..., Any], some_text: Path) -> None:
    """Rank 0 speaks, on stdout, without escapes; evaluation counts the held-out text."""
    ended = launch(
        *("-m", "rankscope.trainers.ddp", *SMALL, "--text", str(some_text)),
        *("--steps", "6", "--log-every", "3", "--eval-every", "6"),
        ranks=2,
    )
    assert (ended.code, ended.stderr) == (0, ""), ended
    lines = ended.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["step", "1/6"],
        ["step", "3/6"],
        ["step", "6/6"],
        ["step", "6/6"],
    ]
    assert "held-out loss" in lines[-1]
    assert "\x1b" not in ended.stdout
    assert "\r" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--text", "/does/not/exist"), "no such file"),
        (("--text-bytes", "3000"), "has 3000 tokens and one batch needs 8192"),
    ],
)
def test_all_ranks_refuse_and_one_says_why(
    launch: Callable[..., Any], arguments: tuple[str, ...], says: str
) -> None:
    """Under torchrun the line is there once, the first to fail ends with code 2, nobody hangs."""
    ended = launch(
        *("-m", "rankscope.trainers.ddp", *SMALL, *arguments, "--seq-len", "512"), ranks=2
    )
    assert ended.code != 0
    assert ended.stderr.count(says) == 1
    assert "rank      : 0 (local_rank: 0)\n  exitcode  : 2" in ended.stderr.split("Root Cause")[1]
    assert 'File "' not in ended.stderr.split("rankscope.trainers.ddp: ")[0]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_no_thread_of_the_process_group_outlives_it(launch: Callable[..., Any]) -> None:
    """One that did could abort a process whose run was fine, while the interpreter ends."""
    arguments = [*SMALL, "--steps", "2"]
    program = f"""
import os, time
from rankscope.trainers.fsdp2 import TRAINER
from rankscope.trainers.program import main
before = set(os.listdir("/proc/self/task"))
assert main(TRAINER, {arguments!r}) == 0
left = lambda: len(set(os.listdir("/proc/self/task")) - before)
deadline = time.monotonic() + 30  # one is in the list a moment longer than whoever joins it waits
while left() and time.monotonic() < deadline: time.sleep(0.01)
print("left:", left())
"""
    ended = launch("-c", program)
    assert (ended.code, ended.stderr) == (0, ""), ended
    assert ended.stdout.splitlines()[-1] == "left: 0"


def wait_for_line(process: "subprocess.Popen[str]", start: str, timeout_s: float = 120.0) -> None:
    """Read ``process``'s output until a line begins with ``start``."""
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ready, _, _ = select.select([process.stdout], [], [], 0.5)
        if ready and process.stdout.readline().startswith(start):
            return
        assert process.poll() is None, "ended early"
    raise AssertionError(f"no line {start!r} in {timeout_s} s")


def plain_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}


def test_sigterm_ends_a_run_as_it_ends_any_process() -> None:
    """It is not swallowed: a launcher would have to kill."""
    assert not Place.from_environment().launched
    with subprocess.Popen(
        [warm.python(), "-m", "rankscope.trainers.ddp", *SMALL, "--steps", "1000000"],
        stdout=subprocess.PIPE,
        text=True,
        env=plain_environment(),
    ) as process:
        wait_for_line(process, "step     1/")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM


def test_nodes_with_different_texts_refuse_together(some_text: Path, tmp_path: Path) -> None:
    """Ranks that disagree on where an epoch ends would hang; each node says so in one line."""
    other = tmp_path / "other.txt"
    other.write_text(some_text.read_text()[:-1])
    port = free_port()

    def start(rank: int, text: Path) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [warm.python(), "-m", "rankscope.trainers.ddp", *SMALL, "--text", str(text)],
            stderr=subprocess.PIPE,
            text=True,
            env=plain_environment()
            | {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        )

    with start(0, some_text) as one, start(1, other) as two:
        try:
            for process in (one, two):
                _, stderr = process.communicate(timeout=240)
                assert process.returncode == 2
                assert stderr.count("\n") == 1
                assert "different texts" in stderr
        finally:
            for process in (one, two):
                process.kill()  # nothing to do where it has ended
