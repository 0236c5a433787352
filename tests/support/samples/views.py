"""The views of single screens: numbers, stacks, collectives, memory, checkpoints, steps."""

import math

from rankscope.protocol import shapes as s
from support.samples.run import CHECKPOINT, FINDING

NUMERICS = s.Numerics(
    run="20251129-160000-a1b2c3",
    step=13,
    steps=[11, 12, 13],
    ranks=[
        s.NumericsRow(
            rank=1,
            step=13,
            local_norm=math.nan,
            distance=None,
            norms=[1.2, 1.1, math.nan],
            loss=2.31,
            loss_scale=None,
            skipped=0,
            signs=1,
            not_covered=["sparse gradients: embedding.weight"],
            large_every=8,
        )
    ],
    left_out=3,
    signs=[
        s.SignRow(
            rank=1,
            stage="gradient",
            step=13,
            microbatch=2,
            name="blocks.1.mlp.up.weight",
            value="nan",
            count=1,
            others=3,
            note="",
        )
    ],
    findings=[],
    replicas_checked_step=12,
    replicas_equal=True,
    parameters=[s.ParameterRow(name="blocks.1.mlp.up.weight", local_norm=None, value="nan")],
    parameters_step=13,
)

STACKS = s.StacksView(
    run="20251129-160000-a1b2c3",
    groups=[
        s.StackGroup(
            ranks=[1],
            frames=[s.FrameRow(file="/home/ada/train.py", line=41, function="main")],
            from_outside=True,
            source="train.py:41 in main",
            age_s=1.5,
        )
    ],
    missing=[3],
    notes=["rank 3: no stack: allow ptrace (kernel.yama.ptrace_scope is 2)"],
    threads={"MainThread": [s.FrameRow(file="/home/ada/train.py", line=41, function="main")]},
)

COLLECTIVES = s.Collectives(
    run="20251129-160000-a1b2c3",
    groups=[
        s.CollectiveRow(
            group="0",
            description="default_pg",
            backend="gloo",
            size=4,
            enqueued_least=36,
            enqueued_most=37,
            completed_least=36,
            behind=[1],
            waiting=[0, 2, 3],
            operation="gloo:all_reduce [1024] float32",
            source="train.py:44 in main",
        )
    ],
    findings=[],
    operations=[
        {"group": "0", "seq": 37, "name": "gloo:all_reduce", "sizes": "[1024] -> [1024]"},
    ],
)

MEMORY_VIEW = s.MemoryView(
    run="20251129-160000-a1b2c3",
    steps=[11, 12, 13],
    ranks=[
        s.MemoryRow(
            rank=1,
            host="gpu-node-17",
            resident_bytes=512_000_000,
            peak_resident_bytes=600_000_000,
            allocated_bytes=None,
            reserved_bytes=None,
            peak_allocated_bytes=None,
            limit_bytes=1_000_000_000,
            growth_bytes_per_step=4_194_304.0,
            full_at_step=132,
            history_bytes=[503_000_000, 507_000_000, 512_000_000],
            state_bytes=6_956_032,
            predicted_state_bytes=6_956_032.0,
        )
    ],
    left_out=3,
    findings=[],
    prediction="869 504 parameters × (4+4+8) bytes, fully sharded over 2 ranks",
)

CHECKPOINTS = s.CheckpointsView(
    run="20251129-160000-a1b2c3",
    pending="saving",
    request=1795983291268,
    ranks=[
        s.SaveRow(
            rank=1,
            step=12,
            request=1795983291268,
            phase="writing",
            phase_s=0.4,
            done_bytes=1_000_000,
            total_bytes=2_000_000,
            rate_bytes_per_s=4e8,
        )
    ],
    left_out=0,
    slowest=1,
    outcomes=[
        s.SaveOutcome(
            step=10,
            request=0,
            ok=False,
            age_s=31.0,
            path="",
            text="rank 1, writing: No space left on device",
            rank=1,
            phase="writing",
            size_bytes=0,
        )
    ],
    last=CHECKPOINT,
    command=s.Command(
        request=1795983291269,
        command="pause",
        author="ada@node-a",
        age_s=31.5,
        state="paused",
        text="paused after step 14",
        step=14,
    ),
    commands=[
        s.Command(
            request=1795983291268,
            command="checkpoint",
            author="a signal on rank 3",
            age_s=95.0,
            state="given-up",
            text="rank 1 did not hear of it",
            ended_age_s=35.0,
        )
    ],
    paused=s.Paused(
        request=1795983291269,
        author="ada@node-a",
        step=14,
        since_s=30.0,
        expires_s=1770.0,
        ranks=[0, 1],
    ),
    possible={"resume": "", "pause": "the run is paused already"},
    note="paused after step 14 by ada@node-a: rankscope resume",
    parity=s.Parity(
        text="parity: first differs at step 14: rank 1 has loss 2.5, before it was 2.25; 1 step "
        "before it bitwise equal",
        over=True,
        steps=1,
        first_step=13,
        last_step=13,
        batches=1,
        difference=s.ParityDifference(step=14, rank=1, what="loss", before=2.25, now=2.5),
    ),
)

ANALYSIS = s.Analysis(
    world_size=4,
    ranks=[0, 1, 2],
    missing=[3],
    findings=[FINDING],
    groups=COLLECTIVES.groups,
    notes=["nccl_trace_rank_3 was passed over: it is empty"],
)

STEPS = s.StepsView(
    run="20251129-160000-a1b2c3",
    step=12,
    steps=[11, 12],
    step_s=[0.163, 0.4],
    loss=[2.5, float("nan")],
    phase_s={
        "data": [0.003, 0.24],
        "forward": [0.05, 0.05],
        "backward": [0.09, 0.09],
        "optimizer": [0.02, 0.02],
        "other": [0.0, 0.0],
    },
    waited_s=[0.01, None],
    anomalies=[
        s.StepAnomaly(step=12, what="loss not finite", value=float("nan"), usual=None),
        s.StepAnomaly(step=12, what="slow step", value=0.4, usual=0.163),
    ],
    late_steps=[11, 12],
    ranks=[
        s.StepsRow(
            rank=1,
            host="node-a",
            work_s=0.39,
            waited_s=0.01,
            late_s=0.23,
            phase="data",
            factor=80.0,
            late_percent=[None, 60],
        )
    ],
    left_out=0,
    findings=[],
    rank_steps=[12],
    rank_phase_s={"data": [0.24], "forward": [0.05]},
    rank_waited_s=[0.01],
)
