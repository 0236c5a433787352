"""What a run is made of, at work at step 12,480: rows, nodes, findings; each can be changed."""

import math

import msgspec

from rankscope.protocol import shapes as s
from rankscope.tui.feed.poller import Snapshot

HUB_S = 1764432105.0

GPU = s.Gpu(
    index=0,
    name="NVIDIA H100",
    utilisation_percent=97.0,
    memory_used_bytes=41_200_000_000,
    memory_total_bytes=80_000_000_000,
    temperature_c=64.0,
    power_w=612.5,
    sm_clock_mhz=1980.0,
    throttle_reasons=[],
    ecc_uncorrected=0,
    nvlink_errors=0,
)


def row(rank: int, host: str, **changes: object) -> s.RankRow:
    """A rank at work at step 12,480."""
    base = s.RankRow(
        rank=rank,
        host=host,
        pid=4700 + rank,
        step=12480,
        phase="backward",
        phase_s=0.04,
        link="up",
        step_s=0.163,
        loss=2.3141 + rank / 1000,
        grad_norm=0.82,
        memory_peak_bytes=41_200_000_000,
        local_rank=rank % 4,
        microbatch=2,
        process="alive",
        heard_s=0.1,
        tokens_per_s=25_100.0,
    )
    return msgspec.structs.replace(base, **changes)


def history(steps: int = 120, newest: int = 12480) -> s.History:
    """A falling loss, an even step time with one slow step."""
    numbers = range(newest - steps + 1, newest + 1)
    return s.History(
        step=list(numbers),
        loss=[2.3 + 1.2 * math.exp(-i / 40) + 0.02 * math.sin(i * 1.7) for i in range(steps)],
        step_s=[
            0.163 + 0.003 * math.sin(i * 2.3) + (0.2 if i == steps - 9 else 0) for i in range(steps)
        ],
    )


def run(
    ranks: int = 8,
    a_node: int = 4,
    *,
    state: s.State = "running",
    gpu: bool = True,
    findings: list[s.Finding] | None = None,
    rows: dict[int, dict[str, object]] | None = None,
    absent: tuple[int, ...] = (),
    overview: dict[str, object] | None = None,
    **status: object,
) -> Snapshot:
    """A run of ``ranks`` on nodes of ``a_node``; ``rows`` changes fields of single ranks."""
    findings = findings or []
    hosts = [
        f"node-{chr(97 + i) if ranks <= 26 * a_node else f'{i:04}'}"
        for i in range(-(-ranks // a_node))
    ]
    all_rows = [
        row(rank, hosts[rank // a_node], **(rows or {}).get(rank, {}))
        for rank in range(ranks)
        if rank not in absent
    ]
    nodes = [
        s.Node(
            host=host,
            ranks=[
                rank
                for rank in range(i * a_node, min(ranks, (i + 1) * a_node))
                if rank not in absent
            ],
            sentinel="up",
            gpus=[
                msgspec.structs.replace(GPU, index=g, temperature_c=64.0 + i % 5)
                for g in range(a_node)
            ]
            if gpu
            else [],
            gpu_note="" if gpu else "none: no NVIDIA driver on this machine",
            memory_peak_bytes=41_200_000_000 if gpu else 600_000_000,
            memory_available_bytes=8_000_000_000,
            load_1min=3.75,
        )
        for i, host in enumerate(hosts)
    ]
    whole = s.Status(
        run="20261129-163000-k3f9ab",
        attempt=0,
        world_size=ranks,
        state=state,
        step=12480,
        verdict=findings[0] if findings else None,
        findings=findings,
        ranks=all_rows,
        last_checkpoint=s.Checkpoint(step=12000, path="/runs/x/step-12000", verified=True),
        dropped=0,
        overhead_s_per_step=0.000061,
        name="gpt-stdlib",
    )
    whole = msgspec.structs.replace(whole, **status)
    head = s.Overview(
        run=whole.run,
        name=whole.name,
        trainer="ddp",
        device="cuda" if gpu else "cpu",
        attempt=0,
        world_size=ranks,
        state=state,
        step=whole.step,
        up_s=8047.0,
        stalled_s=whole.stalled_s,
        data_age_s=0.2,
        steps_per_s=6.13,
        step_s=0.163,
        step_spread_s=0.004,
        tokens_per_s=201_000.0,
        loss=2.3141,
        grad_norm=0.82,
        phase_s={
            "data": 0.003,
            "forward": 0.051,
            "backward": 0.092,
            "optimizer": 0.017,
            "other": 0.0,
        },
        memory_peak_bytes=nodes[0].memory_peak_bytes,
        overhead_s_per_step=0.000061,
        dropped=0,
        bad_frames=0,
        hub_restarts=0,
        healthy_s=None if findings else 2280.0,
        findings={"info": 0, "warning": 0, "critical": len(findings)},
        incidents=0,
        verdict=whole.verdict,
        last_checkpoint=whole.last_checkpoint,
        exit_code=whole.exit_code,
        nodes=[node for node in nodes if node.ranks],
        history=history(),
    )
    head = msgspec.structs.replace(head, **(overview or {}))
    return Snapshot(whole, head, HUB_S, 0.0, "up", "", 0.0)


def finding(
    kind: str, ranks: list[int], victims: list[int], headline: str, **more: object
) -> s.Finding:
    base = s.Finding(
        kind=kind,
        severity="critical",
        ranks=ranks,
        victims=victims,
        step=12481,
        since_s=42.0,
        headline=headline,
        evidence=["no beat from it since 42 s", "its process is there and uses no CPU"],
        next="",
    )
    return msgspec.structs.replace(base, **more)


def detail_of(row: s.RankRow) -> s.RankDetail:
    """A rank page's worth of facts beside ``row``."""
    raised = row.process == "ended" and row.ended != "exit 0"
    return s.RankDetail(
        row=row,
        facts={"python": "3.11.7", "torch": "2.13.0", "backend": "nccl", "OMP_NUM_THREADS": "1"},
        trainer="ddp",
        device="cuda:2",
        groups=[
            s.GroupRow(
                group="0",
                description="default_pg",
                backend="nccl",
                size=8,
                ranks=list(range(8)),
                last_enqueued=18233,
                last_started=18233,
                last_completed=18232,
            ),
            s.GroupRow(
                group="1",
                description="",
                backend="gloo",
                size=2,
                ranks=[2, 6],
                last_enqueued=12,
                last_started=-1,
                last_completed=12,
            ),
        ],
        phase_s={
            "data": 0.003,
            "forward": 0.051,
            "backward": 0.092,
            "optimizer": 0.017,
            "other": 0.02,
        },
        step_s_history=[0.163 + 0.01 * (i % 3) for i in range(30)],
        memory={
            "allocated_bytes": 30_100_000_000,
            "peak_allocated_bytes": 41_200_000_000,
            "reserved_bytes": 44_000_000_000,
            "device_total_bytes": 80_000_000_000,
            "resident_bytes": 5_120_000_000,
            "peak_reserved_bytes": None,
        },
        cpu_s=4212.0,
        resident_bytes=5_120_000_000,
        hub_offset_s=1764432000.25,
        hub_offset_error_s=0.0004,
        probe_faults={"memory": "OSError: [Errno 5] Input/output error"} if raised else {},
        exception='Traceback (most recent call last):\n  File "train.py", line 118, in main\n'
        "    loss = objective(model(batch))\nValueError: no such token"
        if raised
        else "",
    )
