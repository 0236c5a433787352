"""A run over two nodes with no shared folder: one hub, a sentinel on each node.

Rank 0 tells the other node through torch's store where the hub is and with which key.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import netns
from support.runs import (
    RANKSCOPE,
    Run,
    belonging_to,
    end_run,
    environment,
    grave,
    kinds,
    wait_until,
)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(600),  # TCP sends again the later, the longer the cable was out
    pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "namespaces"),
]

PORT = 29577  # free in namespaces that are new


@dataclass
class RunOnNode(Run):
    """A run whose launcher is on ``node``; it is asked from there."""

    node: netns.Node | None = None

    def ask(self, *command: str, timeout_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
        assert self.node is not None
        return subprocess.run(
            self.node.command(*RANKSCOPE, *command),
            env=environment(self.home),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def static(first: netns.Node, node: netns.Node) -> list[str]:
    """torchrun's arguments for nodes that know their places."""
    rank = int(node is not first)
    return [f"--node-rank={rank}", f"--master-addr={first.address}", f"--master-port={PORT}"]


def elastic(first: netns.Node, node: netns.Node) -> list[str]:
    """For nodes that find their places, again after each failure; the node of rank 0 may vary."""
    return [
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={first.address}:{PORT}", "--rdzv-id=run"),
        *(f"--rdzv-conf=is_host={int(node is first)}", f"--local-addr={node.address}"),
        "--max-restarts=3",
    ]


@contextlib.contextmanager
def run_on_both(
    folder: Path,
    first: netns.Node,
    second: netns.Node,
    launch: Callable[[netns.Node, netns.Node], list[str]] = static,
) -> Iterator[RunOnNode]:
    """One rank a node, for ever; each node has a home and a temporary folder of its own."""
    runs = []
    for node in (first, second):
        home, temporary = folder / f"home-{node.letter}", folder / f"tmp-{node.letter}"
        temporary.mkdir()
        trainer = ["-m", "rankscope.trainers.ddp", "--steps", "1000000", "--layers", "1"]
        words = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
            *launch(first, node),
            *trainer,
        ]
        if node is first:
            words = [*RANKSCOPE, "run", "--bind", first.address, "--", *words]
        with (folder / f"{node.letter}.out").open("w") as sink:
            process = subprocess.Popen(
                node.command(*words),
                env=environment(
                    home,
                    TMPDIR=str(temporary),
                    GLOO_SOCKET_IFNAME=node.device,
                    PYTHON_EXEC=sys.executable,  # a fork would be on the tests' own network
                ),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        runs.append(RunOnNode(home, process, folder / f"{node.letter}.out", node=node))
    try:
        yield runs[0]
    finally:
        for run in runs:
            end_run(run)


def test_a_stop_a_cut_and_a_death_on_the_other_node_are_told(tmp_path: Path) -> None:
    """Each is named with its node, and closes when it is over."""
    with netns.two_nodes() as (first, second), run_on_both(tmp_path, first, second) as run:
        status = run.wait_status(
            lambda s: len(s["ranks"]) == 2 and all(row["step"] >= 2 for row in s["ranks"]),
            "both ranks train",
        )
        assert [row["host"] for row in status["ranks"]] == ["node-a", "node-b"]
        pid = status["ranks"][1]["pid"]

        os.kill(pid, signal.SIGSTOP)
        status = run.wait_status(grave, "a verdict on the stopped rank")
        assert (status["verdict"]["kind"], status["verdict"]["ranks"]) == ("rank-stopped", [1])
        assert "node-b" in " ".join(status["verdict"]["evidence"])
        os.kill(pid, signal.SIGCONT)
        run.wait_status(lambda s: not kinds(s), "it is closed when the rank goes on")

        second.cable("down")
        status = run.wait_status(grave, "a verdict on the cut")
        assert (status["verdict"]["kind"], status["verdict"]["ranks"]) == ("link-lost", [1])
        assert "node-b" in status["verdict"]["headline"]
        second.cable("up")
        step = status["step"]
        run.wait_status(lambda s: not kinds(s) and s["step"] > step + 1, "it trains on", 240)

        os.kill(pid, signal.SIGKILL)
        run.process.wait(120)
        last = run.wait_status(lambda s: s["state"] == "failed" and s["verdict"], "the verdict")
        verdict = last["verdict"]
        assert (verdict["kind"], verdict["ranks"], verdict["victims"]) == ("rank-dead", [1], [0])
        assert "SIGKILL" in verdict["headline"]
        wait_until(lambda: not belonging_to(tmp_path / "home-b"), "nothing is left on node-b")


def test_ranks_are_followed_over_a_restart_that_only_one_node_counts(tmp_path: Path) -> None:
    """Each launcher counts the failures of its own ranks; all are started anew, and all heard."""
    with (
        netns.two_nodes() as (first, second),
        run_on_both(tmp_path, first, second, elastic) as run,
    ):
        before: set[int] = set()

        def trains(status: dict[str, Any]) -> bool:
            rows = status["ranks"]
            return len(rows) == 2 and all(
                row["pid"] not in before and row["link"] == "up" and row["step"] >= 2
                for row in rows
            )

        status = run.wait_status(trains, "both ranks train", 180.0)
        before.update(row["pid"] for row in status["ranks"])
        os.kill(status["ranks"][1]["pid"], signal.SIGKILL)
        status = run.wait_status(trains, "both ranks train again", 180.0)
        assert kinds(status) == []
