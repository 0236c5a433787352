"""A fleet of synthetic agents: real frames over real CURVE sockets to a real hub, no training.

``with fleet(directory, ranks=16_384) as ranks`` starts one process that plays all ranks and a
sentinel for each eight of them, many on one connection. As a program of its own it plays them
for a run directory that has a hub, and reads what shall go wrong from standard input:

    kill 77     the process of rank 77 dies of SIGKILL, its sentinel says so; the others wait
    stop 77     it is stopped; its sentinel says so
    hang 77     it stays in its loader, and the others wait for it in backward
    nan 77      its gradient is NaN from now on
    lose 77     its node is cut off: no rank on it and no sentinel says anything
    share 0.5   from now on half of the ranks have something new each half second

A rank that has nothing new beats every two seconds: less often than a real one, so that the two
cores of a laptop can play 16,384. A hub that does not keep up is waited for.
Run directly it measures what such a fleet costs its hub.
"""

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import zmq

from rankscope.protocol import codec
from rankscope.protocol import messages as m
from rankscope.protocol.keys import ClientKey
from rankscope.protocol.rundir import RunDirectory

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
        self._beat(rank, news=True, record=True)

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


class Ranks:
    """A fleet that is played by a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def tell(self, order: str) -> None:
        """Pass on a line such as ``kill 77``."""
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()


@contextmanager
def fleet(
    directory: RunDirectory, *, ranks: int, share: float = 0.01, gpus: bool = False
) -> Iterator[Ranks]:
    """Play ``ranks`` ranks of the run in ``directory``; all were introduced when this begins."""
    command = [sys.executable, __file__, "--run-dir", str(directory.path), "--ranks", str(ranks)]
    command += ["--share", str(share), *(["--gpus"] if gpus else [])]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the fleet did not start"
        yield Ranks(process)
    finally:
        process.terminate()
        process.wait(30)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def serve(given: argparse.Namespace) -> None:
    """Play until the end of standard input."""
    directory = RunDirectory(given.run_dir.resolve())
    info = directory.read_info()
    assert info.endpoint is not None, "this run has no hub"
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    with Fleet(
        info.run,
        info.endpoint,
        directory.read_key("agent"),
        ranks=given.ranks,
        share=given.share,
        gpus=given.gpus,
    ) as played:
        played.introduce()
        print("introduced", flush=True)
        due_s = time.monotonic()
        while True:
            played.play()
            # A machine that cannot keep up plays slower instead of piling up.
            due_s = max(due_s + INTERVAL_S, time.monotonic())
            while (wait_s := due_s - time.monotonic()) > 0:
                if not poller.poll(int(wait_s * 1000) + 1):
                    continue
                order = sys.stdin.readline().split()
                if not order:
                    return
                if order[0] == "share":
                    played.share = float(order[1])
                else:
                    played.trouble(order[0], int(order[1]))


def measure(sizes: list[int]) -> None:
    """What each size costs its hub, and how long a status takes it meanwhile."""
    import tempfile

    import _figure
    import psutil

    from rankscope.protocol.launch import wait_for_hub
    from support.wire import Hub, new_run, spawn

    for ranks in sizes:
        with tempfile.TemporaryDirectory() as folder:
            hub = Hub(new_run(Path(folder)), ())
            hub.process = spawn(hub.directory)
            hub.info = wait_for_hub(hub.directory, hub.process, 120.0)
            try:
                with fleet(hub.directory, ranks=ranks), hub.connect("viewer") as viewer:
                    time.sleep(3.0)
                    process = psutil.Process(hub.process.pid)
                    before, start_s = sum(process.cpu_times()[:2]), time.monotonic()
                    delays = []
                    version = viewer.ask("status").version
                    while time.monotonic() - start_s < 10.0:
                        asked_s = time.monotonic()
                        version = viewer.ask("status", since=version).version
                        delays.append(time.monotonic() - asked_s)
                        time.sleep(0.5)
                    spent_s = sum(process.cpu_times()[:2]) - before
                    status = viewer.status()
                    share = spent_s / (time.monotonic() - start_s)
                    _figure.figure(
                        "fleet_hub_cpu",
                        round(100 * share, 1),
                        "% of a core",
                        100.0,
                        ranks=ranks,
                        share_changing=0.01,
                        status_ms=round(1000 * sorted(delays)[len(delays) // 2], 1),
                        resident_mb=round(process.memory_info().rss / 1e6, 1),
                        state=status.state,
                        findings=[finding.kind for finding in status.findings],
                        missed=sum(row.missed for row in status.ranks),
                        **_figure.load(),
                    )
            finally:
                hub.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, help="play for this run until stdin ends")
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--gpus", action="store_true", help="sentinels report eight GPUs each")
    given = parser.parse_args()
    if given.run_dir is not None:
        serve(given)
    else:
        measure([8, 512, given.ranks])


if __name__ == "__main__":
    main()
