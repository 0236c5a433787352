"""One run as a whole: its status and overview, a rank, a finding, what there is of its past."""

import math

from rankscope.protocol import shapes as s

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
