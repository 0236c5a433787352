"""Trainers that go on from a checkpoint: as if nothing had been, with any number of ranks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.protocol import checkpoints
from rankscope.trainers.config import Config
from rankscope.trainers.data import build
from rankscope.trainers.launch import Ranks
from rankscope.trainers.loop import windows
from rankscope.trainers.resume import Position
from rankscope.trainers.watch import Unwatched

Launch = Callable[..., Any]

TIMEOUT_S = 120.0

SMALL = (
    *("--seq-len", "32", "--dim", "16", "--layers", "1", "--heads", "1", "--attach", "none"),
    *("--text-bytes", "20000", "--log-every", "100", "--eval-every", "3"),
)
"""Some hundred sequences, and some to evaluate on."""


def seen(ranks: int, config: Config, text: bytes, position: Position, updates: int) -> list[Any]:
    """The sequences that ``updates`` updates of all ranks see from ``position`` on, which moves."""
    found: list[Any] = []
    before = (position.epoch, position.seen)
    for rank in range(ranks):
        position.epoch, position.seen = before
        data = build(config, text, rank, ranks, pin_memory=False)
        given = windows(Unwatched(), data, config, Ranks(rank, ranks, None), position)
        for _ in range(updates):
            found += [(position.epoch, *row) for batch in next(given) for row in batch[0].tolist()]
    return found


@pytest.mark.parametrize("uneven", ["drop", "pad"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_epoch_gone_on_with_by_other_ranks_has_each_sequence_once(
    uneven: str, accumulate: int
) -> None:
    """2 ranks, then 3, then 1: nothing is left out of the epoch and nothing comes twice."""
    text = b"".join(b"%05d" % n for n in range(2_000))
    position = Position()
    found: list[Any] = []
    for ranks, batch_size, updates in ((2, 4, 5), (3, 2, 7), (1, 8, 3)):
        config = Config(seq_len=50, batch_size=batch_size, accumulate=accumulate, uneven=uneven)
        found += seen(ranks, config, text, position, updates)
    first = [row for row in found if row[0] == 0 and any(row[1:])]
    assert len(first) == len(set(first))
    if position.epoch > 0:  # all of the epoch, but what drop leaves at its end
        windows_ = -(-(len(text) - 1) // 50)
        assert len(first) == windows_ if uneven == "pad" else windows_ - len(first) < 8


def test_a_window_that_was_given_is_behind_the_position() -> None:
    """What is saved after an update is the position behind its data."""
    config = Config(seq_len=50, batch_size=2, accumulate=2)
    position = Position()
    data = build(config, b"x" * 1_001, 0, 1, pin_memory=False)
    given = windows(Unwatched(), data, config, Ranks(0, 1, None), position)
    next(given)
    assert position == Position(0, 4)
    copy = Position()
    copy.load_state_dict(position.state_dict())
    assert copy == position


@pytest.mark.processes
@pytest.mark.parametrize(
    ("trainer", "other", "options"),
    [
        ("ddp", "fsdp2", ("--workers", "1", "--accumulate", "2")),
        ("fsdp2", "ddp", ("--precision", "fp16")),  # with a gradient scaler
    ],
)
def test_a_run_that_was_interrupted_goes_on_bit_for_bit(
    launch: Launch, tmp_path: Path, trainer: str, other: str, options: tuple[str, ...]
) -> None:
    """Losses and norms of the steps after are those of the run that was not interrupted. A newer
    checkpoint that is damaged is passed over, and the other trainer can go on with the same."""

    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]

    saved = ("--checkpoint-dir", str(tmp_path / "saved"))
    run = ("-m", f"rankscope.trainers.{trainer}", *SMALL, *options, "--steps", "8", *saved)
    # One after the other: a save that is due while the one before is being written is left out.
    every = ("--checkpoint-every", "3", "--checkpoint-sync")
    whole = launch(*run, *every, "--history", str(tmp_path / "whole"), ranks=2)
    assert whole.code == 0, whole
    damaged = tmp_path / "saved" / "step-00000006" / "__0_0.distcp"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = launch(*run, "--history", str(tmp_path / "again"), "--resume", "auto", ranks=2)
    assert again.code == 0, again
    assert "passed over step-00000006" in again.stdout
    assert "going on after step 3" in again.stdout
    assert lines("again") == lines("whole")[3:]

    words = ("-m", f"rankscope.trainers.{other}", *SMALL, "--steps", "4")
    more = launch(
        *(*words, "--resume", str(tmp_path / "saved" / "step-00000003")),
        *("--history", str(tmp_path / "more")),
        ranks=1,
    )
    assert more.code == 0, more
    assert "saved by 2 ranks" in more.stdout
    assert [line["step"] for line in lines("more")] == [4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--resume", "auto"), "--resume auto takes a --checkpoint-dir"),
        (("--checkpoint-every", "5"), "--checkpoint-every takes a --checkpoint-dir"),
        (("--checkpoint-dir", "/dev/null"), "/dev/null is a file"),
        (("--resume", "/nowhere/at/all"), "there is no /nowhere/at/all"),
    ],
)
@pytest.mark.processes
def test_what_cannot_be_gone_on_from_is_refused_in_one_line(
    launch: Launch, arguments: tuple[str, ...], words: str
) -> None:
    """Exit code 2, no traceback."""
    ended = launch("-m", "rankscope.trainers.ddp", *SMALL, "--steps", "1", *arguments)
    assert ended.code == 2, ended
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.processes
def test_a_trainer_that_is_sent_its_schedulers_signal_saves_and_stops(tmp_path: Path) -> None:
    """In order, with the step it stopped at saved; ``--resume auto`` goes on from there."""
    told, saved = tmp_path / "steps.jsonl", tmp_path / "saved"
    command = [sys.executable, "-m", "rankscope.trainers.ddp", *SMALL, "--steps", "1000000"]
    command += ["--attach", "full", "--on-signal", "USR1"]
    command += ["--checkpoint-dir", str(saved), "--history", str(told)]
    variables = os.environ | {"RANKSCOPE_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    pipe, same = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=same, text=True) as run:
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not told.exists() or told.read_text().count("\n") < 3:
                assert run.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            run.send_signal(signal.SIGUSR1)
            said, _ = run.communicate(timeout=TIMEOUT_S)
        finally:
            run.kill()
    assert run.returncode == 0, said
    step = json.loads(told.read_text().splitlines()[-1])["step"]
    assert f"stopped after step {step}" in said
    (found,), _ = checkpoints.find(saved)
    assert found.step == step
    assert checkpoints.verify(saved / found.name).state == "complete"
