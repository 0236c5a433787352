"""A run whose rank is killed, restarted by torchrun, and found to be what it was to the bit."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from support.runs import live_run

pytestmark = pytest.mark.processes

SMALL = (
    *("--seq-len", "16", "--dim", "16", "--layers", "1", "--heads", "1", "--batch-size", "2"),
    *("--text-bytes", "200000", "--eval-every", "0", "--steps", "1000000"),
)

PATIENCE_S = 240.0
"""Ranks start twice here."""


@pytest.mark.timeout(2 * PATIENCE_S + 60)
def test_a_run_that_torchrun_restarts_is_compared_with_what_it_was(tmp_path: Path) -> None:
    """Steps after the newest checkpoint are made again: losses and batches are bitwise equal."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2"),
        *("--max-restarts=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"),
        *("-m", "rankscope.trainers.ddp", *SMALL, "--resume", "auto"),
        *("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-every", "200"),
    ]
    with live_run(tmp_path / "home", command) as run:
        run.wait_status(
            lambda s: s["last_checkpoint"] and s["step"] >= s["last_checkpoint"]["step"] + 10,
            "steps after a checkpoint",
            PATIENCE_S,
        )
        os.kill(run.rank_pids(2)[1], signal.SIGKILL)
        again = run.wait_status(
            lambda s: (
                any(word in s["parity"] for word in ("equal", "differs"))
                and not s["parity"].endswith("so far")
            ),
            "the attempts compared",
            PATIENCE_S,
        )
        assert "bitwise equal" in again["parity"], again["parity"]
        assert "differs" not in again["parity"]
        assert again["parity"] in run.ask("status").stdout
        found = json.loads(run.ask("checkpoints", "--json").stdout)["parity"]
        assert found["batches"] > 0
        assert found["difference"] is None
        log = json.loads(run.ask("incidents", "--json").stdout)["incidents"]
        told = [one["finding"]["headline"] for one in log if one["finding"]["kind"] == "parity"]
        assert told == [again["parity"]] * 2  # opened and closed at once
