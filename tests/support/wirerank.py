"""A rank as the hub hears it: one connection, a message at a time."""

import os
import time
from typing import Any

from rankscope.protocol import messages as m
from support.hello import hello_fields
from support.wire import Peer


class Agent:
    """One rank on one connection."""

    def __init__(self, peer: Peer, rank: int = 0, world_size: int = 1) -> None:
        self.peer = peer
        self.rank = rank
        self.world_size = world_size
        self.seq = 0
        self.step = 0

    def send(self, message: type[m.FromRank], /, **fields: Any) -> None:
        self.seq += 1
        self.peer.send(
            message(
                attempt=0,
                rank=self.rank,
                seq=self.seq,
                t_s=time.monotonic(),
                **fields,
            )
        )

    def hello(self, run: str = "run-1") -> None:
        self.send(m.Hello, **hello_fields(run, self.world_size, self.rank, "here", os.getpid()))

    def beat(self) -> None:
        self.step += 1
        now = time.monotonic()
        record = m.StepRecord(self.step, now, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 1, 2.0, 10, 1.0)
        self.send(
            m.Beat,
            step=self.step,
            microbatch=1,
            phase=m.Phase.FORWARD,
            phase_t_s=now,
            activity=self.step,
            steps=(record,),
        )

    def goodbye(self) -> None:
        self.send(m.Goodbye, reason="finished", step=self.step)
