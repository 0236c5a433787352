"""What the hub costs: a beat, a diagnosis and a view at 16,384 ranks, and a rebuild."""

import tempfile
import time
from pathlib import Path

import _figure

from rankscope.hub import snapshot, views
from rankscope.hub.diagnose import diagnose
from rankscope.hub.incidents import Incidents
from rankscope.hub.recording import FRAME, SNAPSHOT, pack
from rankscope.hub.restore import restore
from rankscope.hub.runstate import run_state
from rankscope.hub.state import RunState
from rankscope.protocol import codec, limits
from rankscope.protocol import messages as m

RANKS = 16_384
ROUNDS = 5


def hello(rank: int, world_size: int) -> m.Hello:
    return m.Hello(
        attempt=0,
        rank=rank,
        seq=1,
        t_s=100.0,
        run="bench",
        world_size=world_size,
        local_rank=rank % 8,
        host=f"node-{rank // 8}",
        pid=1000 + rank,
        name="bench",
        trainer="ddp",
        device=f"cuda:{rank % 8}",
        start_step=0,
        boundary=True,
        facts={"python": "3.11", "torch": "2.13.0", "backend": "nccl"},
    )


def beat(rank: int, seq: int, with_step: bool) -> m.Beat:
    step = seq - 1
    record = m.StepRecord(
        step, 100.0 + step, 0.1, 0.01, 0.03, 0.05, 0.01, 0.0, 2, 2.5, 4096, 0.8, False
    )
    return m.Beat(
        attempt=0,
        rank=rank,
        seq=seq,
        t_s=100.0 + step,
        step=step,
        microbatch=1,
        phase=m.Phase.FORWARD,
        phase_t_s=100.0 + step,
        activity=4 * step,
        steps=(record,) if with_step else (),
        memory=m.Memory(1 << 30, 2 << 30, 3 << 30, 4 << 30, 80 << 30, 5 << 30, 6 << 30),
        collectives=(m.CollectiveStatus("0", 10 * step, -1, 10 * step),),
        overhead_s_per_step=5e-5,
        hub_offset_s=1000.0,
        hub_offset_error_s=1e-4,
    )


def filled(ranks: int) -> RunState:
    state = RunState("bench")
    for rank in range(ranks):
        state.apply(hello(rank, ranks), 1100.0)
    for rank in range(ranks):
        state.apply(beat(rank, 2, with_step=True), 1101.0)
    state.tick(1101.0)
    return state


def all_die(state: RunState) -> None:
    """One rank is killed, its launcher ends the others half a second later."""
    for rank in range(RANKS):
        first = rank == RANKS // 2
        end = m.ProcessEnded(
            node=f"s{rank // 8}",
            seq=1 + rank % 8,
            t_s=10.0,
            attempt=0,
            rank=rank,
            pid=1000 + rank,
            exit_code=None,
            signal=9 if first else 15,
            oom_killed=False,
            event_t_s=9.0 if first else 9.5,
            how="pidfd",
        )
        state.apply(end, 1110.0)


def median_s(work: list[float]) -> float:
    return sorted(work)[len(work) // 2]


def main() -> None:
    state = filled(RANKS)
    for with_step in (False, True):
        costs = []
        for round_ in range(ROUNDS):
            seq = 3 + round_ + ROUNDS * with_step
            messages = [beat(rank, seq, with_step) for rank in range(RANKS)]
            start = time.process_time()
            for message in messages:
                state.apply(message, 1100.0 + seq)
            costs.append((time.process_time() - start) / RANKS)
        _figure.figure(
            "hub_apply_beat", median_s(costs) * 1e6, "us", None, ranks=RANKS, with_step=with_step
        )

    frames = [codec.encode(beat(rank, 100, True)) for rank in range(RANKS)]
    start = time.process_time()
    for frame in frames:
        codec.decode(frame)
    decode_us = (time.process_time() - start) / RANKS * 1e6
    _figure.figure("hub_decode_beat", decode_us, "us", None, bytes=len(frames[0]))

    now_s = 1115.0
    for name, silent in (("healthy", 0), ("node lost", 8), ("all lost", RANKS), ("all dead", 0)):
        state.ranks.heard_s[:] = now_s
        state.ranks.heard_s[:silent] = now_s - 30.0
        if name == "all dead":
            all_die(state)
        costs = []
        for _ in range(ROUNDS):
            start = time.process_time()
            findings = diagnose(state, now_s)
            run_state(state, now_s)
            costs.append(time.process_time() - start)
        _figure.figure(
            "hub_diagnose_tick",
            median_s(costs) * 1e3,
            "ms",
            None,
            ranks=RANKS,
            case=name,
            findings=len(findings),
        )

    know = views.Knowledge(state, Incidents(), [], now_s)
    for name in ("status", "overview"):
        costs = []
        body = b""
        for _ in range(ROUNDS):
            start = time.process_time()
            body = bytes(views.encoded(views.view(know, m.ViewRequest(1, name), 0, now_s)))
            costs.append(time.process_time() - start)
        _figure.figure(
            f"hub_view_{name}", median_s(costs) * 1e3, "ms", None, ranks=RANKS, bytes=len(body)
        )

    costs = []
    for _ in range(ROUNDS):
        start = time.process_time()
        saved = snapshot.dump(state)
        costs.append(time.process_time() - start)
    _figure.figure("hub_snapshot", median_s(costs) * 1e3, "ms", None, ranks=RANKS, bytes=len(saved))
    rebuild()


def rebuild() -> None:
    """A full segment as the recorder leaves it, and one that holds a single snapshot."""
    for name, every_bytes in (("as written", 1 << 20), ("one snapshot", 1 << 40)):
        state = filled(8)
        raw = bytearray(pack(1101.0, SNAPSHOT, snapshot.dump(state)))
        since, seq = 0, 3
        while len(raw) < limits.SEGMENT_BYTES:
            for rank in range(8):
                message = beat(rank, seq, with_step=True)
                record = pack(1100.0 + seq, FRAME, codec.encode(message))
                state.apply(message, 1100.0 + seq)
                raw += record
                since += len(record)
            seq += 1
            if since >= every_bytes:
                raw += pack(1100.0 + seq, SNAPSHOT, snapshot.dump(state))
                since = 0
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "00000001.rec").write_bytes(raw)
            start = time.process_time()
            restored = restore(Path(folder), "bench")
            cost_s = time.process_time() - start
        assert restored is not None
        _figure.figure(
            "hub_rebuild", cost_s * 1e3, "ms", None, segment_bytes=len(raw), case=name, ranks=8
        )


if __name__ == "__main__":
    main()
