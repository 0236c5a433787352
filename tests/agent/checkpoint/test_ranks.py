"""Saves of real ranks: what goes wrong in one costs that one, and the run nothing."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import TCPStore  # torch.distributed's own, but not exported

from rankscope.protocol import checkpoints

pytestmark = pytest.mark.processes


def told(line: Any) -> dict[int, tuple[bool, str]]:
    """By step, whether the save succeeded, and its words."""
    return {step: (ok, text) for step, ok, text in line["outcomes"]}


def complete(directory: Path) -> list[str]:
    """The names of what is in ``directory``, where only whole checkpoints may be."""
    found, others = checkpoints.find(directory)
    assert others == [], "temporary directories are left"
    for one in found:
        verified = checkpoints.verify(directory / one.name)
        assert verified.state == "complete", verified
    return [one.name for one in found]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_failures_cost_a_save_and_neither_the_run_nor_the_next_save(
    ranks: Any, tmp_path: Path, kind: str
) -> None:
    """A rank that cannot write, one at another step, one still busy: told, cleaned up, over."""
    saves = {"1": 0, "2": 0, "3": 0, "4": 0, "5": 7, "7": 0, "8": 0, "9": 9}
    breaks = [
        [1, 2, "writing", "raise"],
        [1, 3, "writing", "full"],
        [0, 4, "publishing", "raise"],
        [1, 7, "writing", "slow"],
    ]
    both = ranks(
        2,
        kind=kind,
        dir=tmp_path / "saved",
        steps=9,
        saves=saves,
        breaks=breaks,
        offset={"1": 1},
        offset_at=5,
        unawaited=[7],
    ).lines()
    zero, one = told(both[0]), told(both[1])

    assert zero[1][0]
    assert not zero[2][0]
    assert zero[2][1] == "rank 1, writing: Input/output error (the disk)"
    assert not zero[3][0]
    assert zero[3][1] == "rank 1, writing: File too large"
    assert not zero[4][0]
    assert not one[4][0]
    assert "rank 0, publishing: Input/output error" in one[4][1]
    assert not zero[5][0]
    assert zero[5][1] == "rank 0 saved step 5 and rank 1 step 6"
    assert zero[7][0]
    assert not zero[8][0]
    assert "was still writing the checkpoint of step 7" in zero[8][1]
    assert zero[9][0]
    names = complete(tmp_path / "saved")
    assert names == ["step-00000009", "step-00000007", "step-00000001"]
    assert (tmp_path / "saved" / "latest").resolve().name == "step-00000009"

    alone = ranks(2, kind=kind, dir=tmp_path / "none", steps=9).lines()
    assert [line["end"] for line in alone] == [line["end"] for line in both], "training changed"


@pytest.mark.parametrize(("kind", "other"), [("ddp", "fsdp2"), ("fsdp2", "ddp")])
def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(
    ranks: Any, tmp_path: Path, kind: str, other: str
) -> None:
    """Dropout, running statistics, a scheduler: the same to the bit at the same world size; the
    same state at another one and under the other wrapper. Training that goes on tears nothing."""
    saved = {"kind": kind, "dir": tmp_path, "steps": 8}
    whole = ranks(2, **saved, saves={"3": 0, "5": 0}, unawaited=[5]).lines()
    again = ranks(2, **saved, resume="auto").lines()
    assert [line["end"] for line in again] == [line["end"] for line in whole]
    assert again[0]["resumed"] == [5, [], True]
    assert again[0]["hashes"]["loaded 5"] == whole[0]["hashes"]["5"]

    (tmp_path / "step-00000005" / "__1_0.distcp").unlink()
    more = ranks(3, kind=other, dir=tmp_path, steps=3, resume="auto").lines()
    assert more[0]["hashes"]["loaded 3"] == whole[0]["hashes"]["3"]
    step, skipped, exact = more[0]["resumed"]
    assert (step, exact) == (3, False)
    assert "step-00000005: __1_0.distcp (rank 1) is missing" in skipped


def test_a_rank_that_is_killed_in_a_save_leaves_the_checkpoint_before_it(
    ranks: Any, tmp_path: Path
) -> None:
    """The survivor finds out, says so and cleans up; the next run takes the one before."""
    run = ranks(
        2,
        dir=tmp_path,
        steps=4,
        saves={"2": 0, "4": 0},
        breaks=[[1, 4, "writing", "kill"]],
        silent_s=2.0,
    )
    assert run.died(1) == -9
    assert run.died(0) == 1  # after its save: the hash at the end is a collective, and fails
    assert complete(tmp_path) == ["step-00000002"]
    again = ranks(2, dir=tmp_path, steps=4, resume="auto").lines()
    assert again[0]["resumed"][0] == 2


def test_rank_0_killed_while_it_publishes_leaves_the_checkpoint_before_it(
    ranks: Any, tmp_path: Path
) -> None:
    """What it left is passed over by name, and taken away by the next save."""
    run = ranks(
        2,
        dir=tmp_path,
        steps=4,
        saves={"2": 0, "4": 0},
        breaks=[[0, 4, "publishing", "kill"]],
        silent_s=2.0,
    )
    assert run.died(0) == -9
    run.died(1)
    found, others = checkpoints.find(tmp_path)
    assert [one.name for one in found] == ["step-00000002"]
    assert len(others) == 1
    assert (tmp_path / "latest").resolve().name == "step-00000002"
    again = ranks(2, dir=tmp_path, steps=4, resume="auto", saves={"4": 0}).lines()
    assert again[0]["resumed"][:2] == [2, [f"{others[0]}: not a checkpoint's name"]]
    assert complete(tmp_path) == ["step-00000004", "step-00000002"]


def test_ranks_that_were_restarted_on_the_same_store_do_not_heed_those_before(
    ranks: Any, tmp_path: Path
) -> None:
    """A launcher's store keeps what was said of the save of the same step, which had failed."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    failing = [[1, 2, "writing", "raise"]]
    ended = []
    for life, breaks in enumerate([failing, []]):
        run = ranks(
            2, dir=tmp_path, steps=2, saves={"2": 0}, breaks=breaks, life=(store.port, life)
        )
        ended.append(run.lines()[0]["outcomes"])
    assert [[ok for _, ok, _ in outcomes] for outcomes in ended] == [[False], [True]], ended


def test_a_rank_that_is_stopped_in_a_save_is_named_and_training_can_go_on(
    ranks: Any, tmp_path: Path
) -> None:
    """It is given up after a while; once it goes on, the next save is a good one."""
    run = ranks(
        2,
        dir=tmp_path,
        steps=6,
        saves={"2": 0, "4": 0, "6": 0},
        breaks=[[1, 4, "writing", "stop"]],
        silent_s=2.0,
    )
    deadline = time.monotonic() + 150
    while "T (" not in Path(f"/proc/{run.processes[1].pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while list(tmp_path.glob(f"{checkpoints.TEMPORARY}*")):  # rank 0 gives it up and cleans up
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stopped = run.processes[1].pid
    assert stopped is not None
    os.kill(stopped, signal.SIGCONT)
    both = run.lines()
    ok, text = told(both[0])[4]
    assert not ok
    assert "rank 1 has said nothing for" in text
    assert told(both[0])[6][0]
    assert complete(tmp_path) == ["step-00000006", "step-00000002"]


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused_on_all_ranks(
    ranks: Any, tmp_path: Path
) -> None:
    """In words that say what differs; nothing on the disk is touched."""
    ranks(2, dir=tmp_path, steps=1, saves={"1": 0}).lines()
    path = tmp_path / "step-00000001"
    with (path / "__1_0.distcp").open("r+b") as file:
        file.seek(3000)
        byte = file.read(1)[0]
        file.seek(3000)
        file.write(bytes([byte ^ 1]))
    before = sorted(entry.name for entry in path.iterdir())
    damaged = ranks(2, dir=tmp_path, steps=1, resume=str(path)).lines()
    assert [line["refused"] for line in damaged] == [damaged[0]["refused"]] * 2
    assert "__1_0.distcp is damaged" in damaged[0]["refused"]
    assert sorted(entry.name for entry in path.iterdir()) == before
    assert json.loads((path / "manifest.json").read_bytes())["step"] == 1
