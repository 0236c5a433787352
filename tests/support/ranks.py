"""Synthetic ranks: they say to a real hub what real ones would, without training anything."""

import threading
import time
from types import TracebackType
from typing import Self

from rankscope.protocol import messages as m
from support.wire import Hub, Peer

BEAT_S = 0.1
NODE = "node-a:1"


class SyntheticRun:
    """``ranks`` ranks on one node that make a step each 0.1 s. Use as a context manager.

    The sentinel of the node is played too. One connection carries everybody, in one thread.
    """

    def __init__(self, hub: Hub, ranks: int = 4) -> None:
        self._peer: Peer = hub.connect("agent")
        self._ranks = ranks
        self._run = hub.directory.run
        self._seqs = dict.fromkeys(range(ranks), 0)
        self._node_seq = 0
        self._dead: dict[int, int] = {}
        self._told: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, name="synthetic-run")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._peer.close()

    def kill(self, rank: int, signal: int = 9) -> None:
        """The rank says no more, and its sentinel reports how it ended."""
        self._dead[rank] = signal

    def _play(self) -> None:
        step = 0
        introduced_s = 0.0
        while not self._stop.is_set():
            now_s = time.monotonic()
            if now_s - introduced_s > 1.0:  # again now and then: the hub may have restarted
                introduced_s = now_s
                self._introduce(now_s)
            step += 0 if self._dead else 1
            for rank in range(self._ranks):
                if rank not in self._dead:
                    self._beat(rank, step, now_s)
            for rank in self._dead.keys() - self._told:
                self._told.add(rank)
                self._ended(rank, now_s)
            self._stop.wait(BEAT_S)

    def _introduce(self, now_s: float) -> None:
        for rank in range(self._ranks):
            if rank not in self._dead:
                self._send(
                    m.Hello(
                        attempt=0,
                        rank=rank,
                        seq=self._next(rank),
                        t_s=now_s,
                        run=self._run,
                        world_size=self._ranks,
                        local_rank=rank,
                        host="node-a",
                        pid=4700 + rank,
                        name="synthetic",
                        trainer="ddp",
                        device="cpu",
                        start_step=0,
                        boundary=True,
                        facts={"torch": "2.13.0"},
                    )
                )
        self._node_seq += 2
        self._send(
            m.NodeHello(
                node=NODE,
                seq=self._node_seq - 1,
                t_s=now_s,
                run=self._run,
                host="node-a",
                pid=4699,
                gpu_note="none: no NVIDIA driver on this machine",
                stack_note="",
                facts={},
            )
        )
        self._send(
            m.NodeReport(
                node=NODE,
                seq=self._node_seq,
                t_s=now_s,
                processes=tuple(
                    m.ProcessSample(0, rank, 4700 + rank, "alive", 1.0, 1.0, 500_000_000)
                    for rank in range(self._ranks)
                    if rank not in self._dead
                ),
                load_1min=1.0,
            )
        )

    def _beat(self, rank: int, step: int, now_s: float) -> None:
        record = m.StepRecord(
            step=step,
            t_s=now_s,
            step_s=0.1,
            data_s=0.01,
            forward_s=0.03,
            backward_s=0.05,
            optimizer_s=0.01,
            other_s=0.0,
            microbatches=1,
            loss=2.0,
            tokens=1000,
            grad_norm=0.5,
        )
        self._send(
            m.Beat(
                attempt=0,
                rank=rank,
                seq=self._next(rank),
                t_s=now_s,
                step=step,
                microbatch=1,
                phase=m.Phase.BACKWARD,
                phase_t_s=now_s,
                activity=4 * step,
                steps=() if self._dead else (record,),
                memory=m.Memory(None, None, None, None, None, 500_000_000, 600_000_000),
                overhead_s_per_step=0.00005,
            )
        )

    def _ended(self, rank: int, now_s: float) -> None:
        self._node_seq += 1
        self._send(
            m.ProcessEnded(
                node=NODE,
                seq=self._node_seq,
                t_s=now_s,
                attempt=0,
                rank=rank,
                pid=4700 + rank,
                exit_code=None,
                signal=self._dead[rank],
                oom_killed=False,
                event_t_s=now_s,
                how="pidfd",
            )
        )

    def _next(self, rank: int) -> int:
        self._seqs[rank] += 1
        return self._seqs[rank]

    def _send(self, message: m.Message) -> None:
        try:
            self._peer.send(message)
        except OSError:  # zmq.Again: the hub is away and the queue is full
            return
