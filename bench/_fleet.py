"""What a fleet of synthetic ranks says: hellos, beats and reports over real sockets.

Many ranks, and the sentinels of their nodes, share a connection. Nothing waits but where it is
said.
"""

import math
import time
from collections.abc import Iterator
from typing import Self

import zmq

from rankscope.protocol import codec
from rankscope.protocol import messages as m
from rankscope.protocol.keys import ClientKey

INTERVAL_S = 0.5
QUIET_S = 2.0
"""Between the beats of a rank that has nothing new, and between the reports of a sentinel."""
HUB_WITHIN_S = 5.0
PER_NODE = 8
RANKS_PER_CONNECTION = 256
GROUP = "0"
STEP_SHARES = (0.05, 0.3, 0.6, 0.05)
"""Of a step: data, forward, backward, optimizer."""


class Connection:
    """One DEALER that carries many ranks and their sentinels. Never waits."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, key: ClientKey):
        socket = self._socket = context.socket(zmq.DEALER)
        socket.linger = 200
        socket.sndhwm = 20_000
        socket.curve_serverkey = key.hub_public.encode()
        socket.curve_publickey = key.public.encode()
        socket.curve_secretkey = key.secret.encode()
        socket.connect(endpoint)
        self.dropped = 0
        self._pongs = 0
        self._asked: list[int] = []

    def send(self, message: m.Message) -> bool:
        try:
            self._socket.send(codec.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            self.dropped += 1
            return False
        return True

    def wait_for_hub(self, within_s: float) -> None:
        """Until the hub has read all that was sent: it answers a ping after that."""
        self.send(m.Ping(time.monotonic()))
        self._pongs -= 1
        end_s = time.monotonic() + within_s
        while self._pongs < 0 and (left_s := end_s - time.monotonic()) > 0:
            if self._socket.poll(int(1000 * left_s) + 1):
                self._asked += self.unknown()

    def unknown(self) -> list[int]:
        """The ranks (-1: a node) of which the hub asks who they are."""
        found, self._asked = self._asked, []
        while True:
            try:
                message = codec.decode(self._socket.recv(zmq.NOBLOCK))
            except (zmq.Again, codec.BadFrame):
                return found
            if isinstance(message, m.WhoAreYou):
                found.append(message.rank)
            elif isinstance(message, m.Pong):
                self._pongs += 1

    def close(self) -> None:
        self._socket.close()


class Fleet:
    """What all ranks are, in lists by rank; :meth:`play` sends what an interval brings."""

    def __init__(
        self,
        run: str,
        endpoint: str,
        key: ClientKey,
        *,
        ranks: int,
        share: float,
        gpus: bool = False,
        per_connection: int = RANKS_PER_CONNECTION,
    ) -> None:
        self.run, self.ranks, self.share, self.gpus = run, ranks, share, gpus
        self.nodes = math.ceil(ranks / PER_NODE)
        self._context = zmq.Context(io_threads=1)
        count = math.ceil(ranks / per_connection)
        self._connections = [Connection(self._context, endpoint, key) for _ in range(count)]
        self._per_connection = per_connection
        self._seq = [0] * ranks
        self._step = [1] * ranks
        self._phase = [m.Phase.BACKWARD] * ranks
        self._phase_t_s = [time.monotonic()] * ranks
        self._node_seq = [0] * self.nodes
        self._next = 0.0
        self._interval = 0
        self._played_s = time.monotonic()
        self._turns: dict[str, int] = {}
        self._troubled: dict[int, str] = {}
        self._waits = False
        self._nan: set[int] = set()
        self._lost: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        self._context.term()

    @property
    def dropped(self) -> int:
        return sum(connection.dropped for connection in self._connections)

    # --- what is sent -------------------------------------------------------------------------

    def introduce(self) -> None:
        """Everybody says who they are."""
        for node in range(self.nodes):
            self._node_hello(node)
        for rank in range(self.ranks):
            self._hello(rank)
            self._beat(rank, news=True)
            if rank % self._per_connection == self._per_connection - 1:
                self._connections[rank // self._per_connection].wait_for_hub(HUB_WITHIN_S)

    def play(self) -> None:
        """One interval: the beats and reports that are due in it."""
        self._interval += 1
        now_s = time.monotonic()
        # By the time that went by: whoever falls behind says more at once.
        due = min(1.0, (now_s - self._played_s) / QUIET_S)
        self._played_s = now_s
        newly: set[int] = set()
        if not self._waits:
            self._next += self.share * self.ranks
            first, self._next = int(self._next), math.fmod(self._next, self.ranks)
            count = min(self.ranks, max(1, round(self.share * self.ranks)))
            newly = {(first - at) % self.ranks for at in range(count)}
        for rank in sorted(newly):
            self._advance(rank)
        for rank in self._turn("quiet", self.ranks, due):
            if rank not in newly:
                self._beat(rank, news=False)
        for node in self._turn("reports", self.nodes, due):
            self._report(node)
        for connection in self._connections:
            for rank in connection.unknown():
                if rank >= 0:
                    self._hello(rank)
        self._connections[self._interval % len(self._connections)].wait_for_hub(HUB_WITHIN_S)

    def _turn(self, what: str, count: int, share: float) -> Iterator[int]:
        """The next ``share`` of ``count`` ranks or nodes, around."""
        first = self._turns.get(what, 0)
        number = min(count, math.ceil(count * share))
        self._turns[what] = (first + number) % count
        return ((first + at) % count for at in range(number))

    def trouble(self, what: str, rank: int) -> None:
        """Let ``kill``, ``stop``, ``hang``, ``nan`` or ``lose`` happen to ``rank``."""
        now_s = time.monotonic()
        if what == "nan":
            self._nan.add(rank)
            return
        if what == "lose":
            self._lost.add(rank // PER_NODE)
            return
        self._troubled[rank] = what
        self._waits = True
        for other in range(self.ranks):
            hung = other == rank
            self._phase[other] = m.Phase.DATA if hung else m.Phase.BACKWARD
            self._phase_t_s[other] = now_s
            if not hung or what == "hang":
                self._beat(other, news=True, entered=not hung)
        if what == "kill":
            self._ended(rank)
        elif what == "stop":
            self._report(rank // PER_NODE)

    def _advance(self, rank: int) -> None:
        now_s = time.monotonic()
        self._step[rank] += 1
        self._phase[rank] = (m.Phase.FORWARD, m.Phase.BACKWARD)[rank % 2]
        self._phase_t_s[rank] = now_s
        if rank in self._nan:
            self._sign(rank, now_s)
        self._beat(rank, news=True, record=True)

    def _sign(self, rank: int, now_s: float) -> None:
        """The rank has seen that its gradient is NaN."""
        step = self._step[rank]
        sign = m.Sign(m.Stage.GRADIENT, step, 1, "blocks.0.mlp.up.weight", "nan")
        signs = m.Signs(0, rank, self._seq[rank] + 1, now_s, step, (sign,), (m.Stage.GRADIENT,))
        if self._send(rank, signs):
            self._seq[rank] += 1

    def _beat(self, rank: int, *, news: bool, record: bool = False, entered: bool = False) -> None:
        if self._troubled.get(rank) in ("kill", "stop") or rank // PER_NODE in self._lost:
            return
        now_s = time.monotonic()
        step = self._step[rank]
        at = 10 * step + (1 if entered else 0)
        steps = (self._record(rank, step, now_s),) if record else ()
        beat = m.Beat(
            attempt=0,
            rank=rank,
            seq=self._seq[rank] + 1,
            t_s=now_s,
            step=step,
            microbatch=1,
            phase=self._phase[rank],
            phase_t_s=self._phase_t_s[rank],
            activity=4 * step,
            steps=steps,
            memory=m.Memory(20 << 30, 30 << 30, 40 << 30, 41 << 30, 80 << 30, 5 << 30, 6 << 30)
            if news
            else None,
            collectives=(m.CollectiveStatus(GROUP, at, -1, 10 * step),) if news else (),
            overhead_s_per_step=6e-5,
        )
        if self._send(rank, beat):
            self._seq[rank] += 1

    def _record(self, rank: int, step: int, now_s: float) -> m.StepRecord:
        step_s = min(INTERVAL_S / self.share, 30.0)
        data_s, forward_s, backward_s, optimizer_s = (part * step_s for part in STEP_SHARES)
        own = float("nan") if rank in self._nan else 1.0 + (rank % 7) / 10
        return m.StepRecord(
            step=step,
            t_s=now_s,
            step_s=step_s,
            data_s=data_s,
            forward_s=forward_s,
            backward_s=backward_s,
            optimizer_s=optimizer_s,
            other_s=0.0,
            microbatches=1,
            loss=2.5,
            tokens=4096,
            grad_norm=own,
            local_norm=own,
        )

    def _hello(self, rank: int) -> None:
        hello = m.Hello(
            attempt=0,
            rank=rank,
            seq=self._seq[rank] + 1,
            t_s=time.monotonic(),
            run=self.run,
            world_size=self.ranks,
            local_rank=rank % PER_NODE,
            host=host(rank // PER_NODE),
            pid=1000 + rank,
            name="fleet",
            trainer="ddp",
            device=f"cuda:{rank % PER_NODE}",
            start_step=0,
            boundary=True,
            facts={"python": "3.11", "torch": "2.13.0", "backend": "nccl"},
        )
        if self._send(rank, hello):
            self._seq[rank] += 1

    def _node_hello(self, node: int) -> None:
        note = "" if self.gpus else "none: a synthetic fleet"
        self._from_node(
            m.NodeHello(
                *self._node_head(node), self.run, host(node), 900, gpu_note=note, stack_note="",
                facts={},
            )
        )  # fmt: skip

    def _report(self, node: int) -> None:
        if node in self._lost:
            return
        first = node * PER_NODE
        states = {"stop": "stopped", "kill": "ended"}
        processes = tuple(
            m.ProcessSample(
                *(0, rank, 1000 + rank, states.get(self._troubled.get(rank, ""), "alive")),
                *(1.0, 1.0, 5 << 30),
            )
            for rank in range(first, min(self.ranks, first + PER_NODE))
        )
        gpus = tuple(
            m.GpuSample(
                index=index,
                name="synthetic",
                utilisation_percent=90.0 + (self._interval + index) % 10,
                memory_used_bytes=40 << 30,
                memory_total_bytes=80 << 30,
                temperature_c=60.0 + index,
                power_w=600.0,
                sm_clock_mhz=1700.0,
                throttle_reasons=(),
                ecc_uncorrected=0,
                nvlink_errors=0,
            )
            for index in range(PER_NODE if self.gpus else 0)
        )
        self._from_node(m.NodeReport(*self._node_head(node), processes, gpus, load_1min=8.0))

    def _ended(self, rank: int) -> None:
        node = rank // PER_NODE
        head = self._node_head(node)
        ended = m.ProcessEnded(*head, 0, rank, 1000 + rank, None, 9, False, head[2], "pidfd")
        self._from_node(ended)

    def _node_head(self, node: int) -> tuple[str, int, float]:
        return host(node), self._node_seq[node] + 1, time.monotonic()

    def _from_node(self, message: m.FromNode) -> None:
        node = int(message.node.removeprefix("node-"))
        if self._send(node * PER_NODE, message):
            self._node_seq[node] += 1

    def _send(self, rank: int, message: m.Message) -> bool:
        return self._connections[rank // self._per_connection].send(message)


def host(node: int) -> str:
    return f"node-{node:04d}"
