"""One valid example of every message and every shape, as a hang and a death would leave them."""

import math

import msgspec

from rankscope.protocol import messages as m
from rankscope.protocol import shapes as s

STEP = m.StepRecord(
    step=12,
    t_s=104.5,
    step_s=0.163,
    data_s=0.003,
    forward_s=0.051,
    backward_s=0.092,
    optimizer_s=0.016,
    other_s=0.001,
    microbatches=2,
    loss=2.31,
    tokens=32768,
    grad_norm=0.82,
)

MEMORY = m.Memory(
    allocated_bytes=None,
    reserved_bytes=None,
    peak_allocated_bytes=None,
    peak_reserved_bytes=None,
    device_total_bytes=None,
    resident_bytes=512_000_000,
    peak_resident_bytes=600_000_000,
    anonymous_bytes=400_000_000,
    limit_bytes=8_000_000_000,
    limited_bytes=5_000_000_000,
    state_bytes=13_912_064,
)

MESSAGES: dict[m.Kind, m.Message] = {
    m.Kind.HELLO: m.Hello(
        attempt=0,
        rank=1,
        seq=1,
        t_s=100.0,
        run="20261129-163000-k3f9ab",
        world_size=4,
        local_rank=1,
        host="node-a",
        pid=4711,
        name="gpt-stdlib",
        trainer="ddp",
        device="cpu",
        start_step=0,
        boundary=False,
        facts={"python": "3.11.7", "torch": "2.13.0", "backend": "gloo"},
    ),
    m.Kind.BEAT: m.Beat(
        attempt=0,
        rank=1,
        seq=9,
        t_s=104.6,
        step=12,
        microbatch=1,
        phase=m.Phase.FORWARD,
        phase_t_s=104.55,
        activity=120,
        steps=(STEP,),
        late=(m.LateValues(step=11, loss=2.33),),
        memory=MEMORY,
        collectives=(m.CollectiveStatus("0", 37, -1, 36),),
        dropped=0,
        overhead_s_per_step=0.000061,
        hub_offset_s=1764432000.25,
        hub_offset_error_s=0.0004,
    ),
    m.Kind.GROUPS: m.Groups(
        attempt=0,
        rank=1,
        seq=2,
        t_s=100.1,
        groups=(m.Group("0", "default_pg", "gloo", 4, (0, 1, 2, 3)),),
    ),
    m.Kind.RAISED: m.Raised(
        attempt=0,
        rank=1,
        seq=10,
        t_s=105.0,
        type="ValueError",
        message="no such token",
        traceback="Traceback (most recent call last): …",
        source="train.py:118 in main",
        step=12,
        phase=m.Phase.FORWARD,
        from_peer=False,
        event_t_s=104.99,
    ),
    m.Kind.PROBE_FAULT: m.ProbeFault(
        attempt=0, rank=1, seq=11, t_s=105.1, probe="memory", error="OSError: …", step=12
    ),
    m.Kind.GOODBYE: m.Goodbye(attempt=0, rank=1, seq=12, t_s=106.0, reason="finished", step=40),
    m.Kind.SIGNS: m.Signs(
        attempt=0,
        rank=1,
        seq=13,
        t_s=106.5,
        step=13,
        signs=(
            m.Sign(
                stage=m.Stage.GRADIENT,
                step=13,
                microbatch=2,
                name="blocks.1.mlp.up.weight",
                value="nan",
                count=1,
                others=3,
            ),
        ),
        looked=(m.Stage.INPUT, m.Stage.LOSS, m.Stage.GRADIENT),
    ),
    m.Kind.CHECKSUMS: m.Checksums(
        attempt=0,
        rank=1,
        seq=14,
        t_s=106.6,
        step=16,
        first=0,
        total=1234567890123,
        values=(
            m.Checksum(name="blocks.1.mlp.up.weight", value=987654321),
            m.Checksum(name="running_mean", value=5, buffer=True),
        ),
        replicas="world",
        altered=("blocks.1.mlp.up.weight",),
    ),
    m.Kind.PARAMETER_NORMS: m.ParameterNorms(
        attempt=0,
        rank=1,
        seq=15,
        t_s=106.7,
        step=16,
        norms=(m.ParameterNorm(name="blocks.1.mlp.up.weight", local_norm=0.25),),
    ),
    m.Kind.STACKS: m.Stacks(
        attempt=0,
        rank=1,
        seq=16,
        t_s=107.0,
        why="stalled",
        source="train.py:41 in main",
        threads=(
            m.Thread(
                name="MainThread",
                main=True,
                frames=(
                    m.Frame(file="/lib/python3.11/queue.py", line=171, function="get"),
                    m.Frame(file="/home/ada/train.py", line=41, function="main"),
                ),
            ),
        ),
        step=12,
        phase=m.Phase.DATA,
    ),
    m.Kind.OPERATIONS: m.Operations(
        attempt=0,
        rank=1,
        seq=17,
        t_s=107.1,
        why="stalled",
        statuses=(
            m.CollectiveStatus(group="0", last_enqueued=37, last_started=-1, last_completed=36),
        ),
        operations=(
            m.Operation(
                group="0",
                seq=37,
                name="gloo:all_reduce",
                sizes="[1024] -> [1024]",
                dtype="float32",
                state="scheduled",
                source="train.py:44 in main",
                age_s=2.5,
            ),
        ),
    ),
    m.Kind.FOREIGN_STACKS: m.ForeignStacks(
        node="gpu-node-17/4711",
        seq=9,
        t_s=50.5,
        attempt=0,
        rank=1,
        pid=4242,
        threads=(
            m.Thread(
                name="MainThread",
                main=True,
                frames=(m.Frame(file="/home/ada/train.py", line=41, function="main"),),
                holds_gil=True,
            ),
        ),
        native=True,
        source="train.py:41 in main",
        operations=(
            m.Operation(
                group="0",
                seq=12,
                name="gloo:all_reduce",
                sizes="[1024] -> [1024]",
                dtype="float32",
                state="scheduled",
                source="train.py:39 in main",
                age_s=1.5,
            ),
        ),
    ),
    m.Kind.INQUIRE: m.Inquire(rank=1, what=("stacks", "operations")),
    m.Kind.SAVING: m.Saving(
        attempt=0,
        rank=1,
        seq=14,
        t_s=105.2,
        step=12,
        request=1795983291268,
        phase="failed",
        phase_t_s=105.1,
        done_bytes=1_000_000,
        total_bytes=2_000_000,
        rate_bytes_per_s=4e8,
        text="rank 1, writing: No space left on device",
        path="",
        culprit=1,
        culprit_phase="writing",
    ),
    m.Kind.CONTROLLED: m.Controlled(
        attempt=0,
        rank=1,
        seq=15,
        t_s=105.4,
        phase="paused",
        phase_t_s=105.3,
        request=1795983291269,
        command="pause",
        author="ada@node-a",
        boundary=14,
        expires_s=1799.5,
        text="paused after step 14",
        saver=True,
        unable="",
        stop_step=0,
        overrun=0,
    ),
    m.Kind.ORDER: m.Order(
        command="pause",
        request=1795983291269,
        expires_s=600.0,
        author="ada@node-a",
        target=0,
        lasts_s=1800.0,
    ),
    m.Kind.NODE_HELLO: m.NodeHello(
        node="node-a:f00d",
        seq=1,
        t_s=100.2,
        run="20261129-163000-k3f9ab",
        host="node-a",
        pid=4712,
        gpu_note="none: no NVIDIA driver on this machine",
        stack_note="",
        facts={"kernel": "6.1.0"},
    ),
    m.Kind.NODE_REPORT: m.NodeReport(
        node="node-a:f00d",
        seq=2,
        t_s=101.2,
        processes=(m.ProcessSample(0, 1, 4711, "alive", 3.5, 12.25, 512_000_000),),
        gpus=(
            m.GpuSample(
                index=0,
                name="NVIDIA H100",
                utilisation_percent=97.0,
                memory_used_bytes=41_200_000_000,
                memory_total_bytes=80_000_000_000,
                temperature_c=64.0,
                power_w=612.5,
                sm_clock_mhz=1980.0,
                throttle_reasons=("sw_power_cap",),
                ecc_uncorrected=0,
                nvlink_errors=None,
            ),
        ),
        load_1min=3.75,
        memory_available_bytes=8_000_000_000,
        memory_limit_bytes=None,
        oom_kills=0,
    ),
    m.Kind.PROCESS_ENDED: m.ProcessEnded(
        node="node-a:f00d",
        seq=3,
        t_s=105.6,
        attempt=0,
        rank=2,
        pid=4713,
        exit_code=None,
        signal=9,
        oom_killed=False,
        event_t_s=105.59,
        how="pidfd",
    ),
    m.Kind.RUN_END: m.RunEnd(exit_code=1),
    m.Kind.VIEW_REQUEST: m.ViewRequest(request=7, view="rank", since=0, args={"rank": 2}),
    m.Kind.COMMAND_REQUEST: m.CommandRequest(request=8, command="checkpoint", author="ada"),
    m.Kind.PING: m.Ping(t_s=100.0),
    m.Kind.PONG: m.Pong(t_s=100.0, hub_s=1764432100.25),
    m.Kind.VIEW_REPLY: m.ViewReply(
        request=7,
        view="status",
        version=41,
        hub_s=1764432105.0,
        changed=True,
        body=msgspec.Raw(msgspec.msgpack.encode({"run": "r"})),
    ),
    m.Kind.COMMAND_REPLY: m.CommandReply(
        request=8, accepted=False, text="not available in this version"
    ),
    m.Kind.REFUSED: m.Refused(text="this hub speaks protocol 1, you speak 2: use one version"),
    m.Kind.WHO_ARE_YOU: m.WhoAreYou(rank=1),
    m.Kind.RUN_OVER: m.RunOver(),
}

FINDING = s.Finding(
    kind="rank-dead",
    severity="critical",
    ranks=[2],
    victims=[0, 1, 3],
    step=12,
    since_s=1.5,
    headline="rank 2 died: SIGKILL at step 13, in backward",
    evidence=["sentinel on node-a: pid 4713 ended by signal 9 (SIGKILL)"],
    next="look for who sent it: dmesg | grep -i kill",
    where={"phase": "backward"},
)

ROW = s.RankRow(
    rank=2,
    host="node-a",
    pid=4713,
    step=12,
    phase="backward",
    phase_s=1.5,
    link="down",
    step_s=0.163,
    loss=math.nan,
    grad_norm=math.inf,
    memory_peak_bytes=600_000_000,
    local_rank=2,
    microbatch=1,
    process="ended",
    ended="SIGKILL",
    heard_s=1.6,
    tokens_per_s=201_000.0,
    dropped=0,
    missed=0,
    probes_off=["memory"],
)

CHECKPOINT = s.Checkpoint(step=10, path="/runs/x/step-10", verified=True)

STATUS = s.Status(
    run="20261129-163000-k3f9ab",
    attempt=0,
    world_size=4,
    state="failed",
    step=12,
    verdict=FINDING,
    findings=[FINDING],
    ranks=[ROW],
    last_checkpoint=CHECKPOINT,
    dropped=0,
    overhead_s_per_step=0.000061,
    name="gpt-stdlib",
    stalled_s=None,
    exit_code=1,
    full=True,
)

OVERVIEW = s.Overview(
    run="20261129-163000-k3f9ab",
    name="gpt-stdlib",
    trainer="ddp",
    device="cpu",
    attempt=0,
    world_size=4,
    state="failed",
    step=12,
    up_s=12.5,
    stalled_s=None,
    data_age_s=1.6,
    steps_per_s=6.13,
    step_s=0.163,
    step_spread_s=0.004,
    tokens_per_s=201_000.0,
    loss=2.31,
    grad_norm=0.82,
    phase_s={"data": 0.003, "forward": 0.051, "backward": 0.092, "optimizer": 0.016, "other": 0.0},
    memory_peak_bytes=600_000_000,
    overhead_s_per_step=0.000061,
    dropped=0,
    bad_frames=0,
    hub_restarts=0,
    healthy_s=None,
    findings={"info": 0, "warning": 0, "critical": 1},
    incidents=1,
    verdict=FINDING,
    last_checkpoint=CHECKPOINT,
    exit_code=1,
    nodes=[
        s.Node(
            host="node-a",
            ranks=[0, 1, 2, 3],
            sentinel="up",
            gpus=[],
            gpu_note="none: no NVIDIA driver on this machine",
            memory_peak_bytes=600_000_000,
            memory_available_bytes=8_000_000_000,
            load_1min=3.75,
        )
    ],
    history=s.History(step=[11, 12], loss=[2.33, 2.31], step_s=[0.16, 0.163]),
    nodes_in_short=s.NodesInShort(
        count=2048,
        gpus=16_384,
        gpu_utilisation_percent=97.5,
        gpu_temperature_c=71.0,
        without_sentinel=1,
        hosts=["node-a"],
        notes={"GPU: no NVIDIA driver on this machine": 2},
    ),
)

DETAIL = s.RankDetail(
    row=ROW,
    facts={"torch": "2.13.0"},
    trainer="ddp",
    device="cpu",
    groups=[
        s.GroupRow(
            group="0",
            description="default_pg",
            backend="gloo",
            size=4,
            ranks=[0, 1, 2, 3],
            last_enqueued=37,
            last_started=-1,
            last_completed=36,
        )
    ],
    phase_s={"data": 0.003, "forward": 0.051, "backward": 0.092, "optimizer": 0.016, "other": 0.0},
    step_s_history=[0.16, 0.163],
    memory={"resident_bytes": 512_000_000, "allocated_bytes": None},
    cpu_s=12.25,
    resident_bytes=512_000_000,
    hub_offset_s=1764432000.25,
    hub_offset_error_s=0.0004,
    probe_faults={"memory": "OSError: …"},
    exception="",
)

INCIDENTS = s.Incidents(
    incidents=[
        s.Incident(
            id="rank-dead/0/2/12",
            event="opened",
            at_s=1764432105.0,
            attempt=0,
            finding=FINDING,
            last_checkpoint=CHECKPOINT,
        )
    ]
)

DRILL = s.DrillRow(
    fault="sigkill@2:13",
    injected=s.Injected(ranks=[2], step=13, kind="rank-dead", where={"phase": "backward"}),
    found=FINDING,
    latency_s=0.4,
    exact=True,
)

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

RECORDING = s.Recording(
    first_s=1_764_433_800.0,
    last_s=1_764_433_812.5,
    growing=False,
    moments=[
        s.Moment(
            at_s=1_764_433_810.0,
            severity="critical",
            kind="rank-dead",
            headline="rank 2 was killed by SIGKILL",
        )
    ],
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

SHAPES: dict[str, s.Shape | list[s.DrillRow]] = {
    "finding": FINDING,
    "status": STATUS,
    "overview": OVERVIEW,
    "rank": DETAIL,
    "incidents": INCIDENTS,
    "drill": [DRILL],
    "numerics": NUMERICS,
    "stacks": STACKS,
    "collectives": COLLECTIVES,
    "memory": MEMORY_VIEW,
    "checkpoints": CHECKPOINTS,
    "steps": STEPS,
    "recording": RECORDING,
    "analysis": ANALYSIS,
}
