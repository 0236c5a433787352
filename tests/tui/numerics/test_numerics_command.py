"""``rankscope numerics`` against a real hub, with ranks that are played by the test."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage
from support.outside import rankscope
from support.runs import RANKSCOPE, environment
from support.wire import Hub, Peer, hub_process, wait_until

pytestmark = pytest.mark.processes

WEIGHT = "blocks.1.mlp.up.weight"


class Ranks:
    """Two ranks on one connection."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.seq = [0, 0]

    def say(self, rank: int, kind: type[m.FromRank], /, **fields: object) -> None:
        self.seq[rank] += 1
        told = kind(0, rank, self.seq[rank], time.monotonic(), **fields)
        self.peer.send(told)

    def join(self) -> None:
        for rank in (0, 1):
            self.say(
                rank, m.Hello, run="run-1", world_size=2, local_rank=rank, host="here",
                pid=70_000_000 + rank, name="test", trainer="ddp", device="cpu", start_step=0,
                boundary=True, facts={},
            )  # fmt: skip

    def step(self, step: int, *norms: float) -> None:
        for rank, norm in enumerate(norms):
            record = m.StepRecord(
                step, time.monotonic(), 0.1, 0.0, 0.03, 0.05, 0.01, 0.0, 1, 2.5, local_norm=norm
            )
            self.say(
                rank, m.Beat, step=step, microbatch=1, phase=m.Phase.DATA,
                phase_t_s=time.monotonic(), activity=step, steps=(record,),
            )  # fmt: skip

    def answer(self, stop: threading.Event) -> None:
        """Tell of the parameters whoever asks, as an agent does."""
        while not stop.is_set():
            message = self.peer.receive(0.05)
            if isinstance(message, m.Inquire) and "parameter_norms" in message.what:
                norms = (m.ParameterNorm("head.weight", 0.5), m.ParameterNorm(WEIGHT, None, "nan"))
                self.say(message.rank, m.ParameterNorms, step=3, norms=norms)


@contextmanager
def spoilt(home: Path) -> Iterator[Hub]:
    """A hub of a run in which rank 1 had a NaN in its gradient in step 3."""
    with hub_process(home) as hub, hub.connect("agent") as peer:
        ranks = Ranks(peer)
        ranks.join()
        ranks.step(1, 1.0, 1.1)
        ranks.step(2, 1.2, 0.9)
        sign = m.Sign(Stage.GRADIENT, 3, 1, WEIGHT, "nan", 1)
        ranks.say(1, m.Signs, step=3, signs=(sign,), looked=(Stage.GRADIENT,))
        ranks.step(3, 1.0, float("nan"))
        stop = threading.Event()
        thread = threading.Thread(target=ranks.answer, args=(stop,))
        thread.start()
        try:
            yield hub
        finally:
            stop.set()
            thread.join()


def test_the_origin_and_the_ranks_are_printed(tmp_path: Path) -> None:
    """As text, with the parameters of the rank asked for, and as one JSON document."""
    with spoilt(tmp_path):

        def told() -> str:
            printed = rankscope(tmp_path, "numerics", "run-1").out
            return printed if "NaN" in printed else ""

        text = wait_until(told, "the verdict")
        assert "NaN in the gradient of" in text
        with_rank = rankscope(tmp_path, "numerics", "run-1", "--rank", "1")
        assert with_rank.code == 0
        assert "parameters of rank 1, step 3, those in trouble first:" in with_rank.out
        assert [WEIGHT in line for line in with_rank.out.splitlines()][-2:] == [True, False]
        printed = json.loads(rankscope(tmp_path, "numerics", "run-1", "--json").out)
        assert printed["findings"][0]["kind"] == "nonfinite-gradient"
        assert printed["ranks"][1]["norms"][0] == pytest.approx(1.1, rel=0.01)
        assert printed["ranks"][1]["norms"][2] == "nan"


def test_a_save_is_asked_for_whoever_reads_the_warning(tmp_path: Path) -> None:
    """That it will hold numbers that are not finite is said once it is given: also where nobody
    reads that any more the answer and the exit code are those of the save."""
    with spoilt(tmp_path) as hub, hub.connect("agent") as peer:
        with hub.connect("viewer") as client:
            client.wait_for_view("status", lambda status: status.verdict is not None)
            ranks = Ranks(peer)
            ranks.seq = [100, 100]
            for rank in (0, 1):
                now_s = time.monotonic()
                ranks.say(rank, m.Controlled, phase="idle", phase_t_s=now_s, saver=True)
            client.wait_for_view("checkpoints", lambda view: not view.possible["checkpoint"])
        closed, writes = os.pipe()
        os.close(closed)
        try:
            given = subprocess.run(
                [*RANKSCOPE, "checkpoint", "--no-wait", "--json"],
                env=environment(tmp_path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=writes,
                timeout=120,
                check=False,
            )
        finally:
            os.close(writes)
        assert given.returncode == 0
        assert json.loads(given.stdout)["request"] > 0


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    """A rank that is not there, and one that is no number."""
    with spoilt(tmp_path):
        missing = rankscope(tmp_path, "numerics", "run-1", "--rank", "7")
        assert (missing.code, missing.out) == (2, "")
        assert missing.err == "rankscope: there is no rank 7; this run has 2 ranks\n"
        wrong = rankscope(tmp_path, "numerics", "run-1", "--rank", "-1")
        assert wrong.code == 2
        assert wrong.err.count("\n") == 1
