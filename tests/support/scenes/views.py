"""Views of steps, saves, incidents and memory, healthy and in trouble."""

import math

import msgspec

from rankscope.protocol import shapes as s
from support.scenes.findings import DEAD
from support.scenes.making import HUB_S, finding

STEPS = 120
NEWEST = 12480
STRAGGLER = finding(
    "straggler",
    [5],
    [0, 1, 2, 3, 4, 6, 7],
    "rank 5 is slow in data: 0.10 s where others take 3 ms (33.0×), 38% of each step, steady since "
    "step 12440",
    severity="warning",
    evidence=[
        "rank 5: 0.10 s of work in data, 0.10 s more than usual, since step 12440",
        "in each step, rank 5 waits 1 ms, ranks 0, 1, 2, 3, 4, 6 and 7 wait 0.10 s",
    ],
    next="see what it does there: rankscope stacks --rank 5",
    where={"phase": "data"},
)

MEMORY_GROWTH = finding(
    "memory-growth",
    [5],
    [],
    "rank 5 grows by 4.19 MB a step since step 96: its limit of 1.00 GB is reached at step 388",
    severity="warning",
    evidence=["512 MB now, 600 MB at most, steady over 176 steps"],
    next="look for what is kept from step to step: a list of losses, a graph that is not let go",
)


def _row(rank: int, late_from: int | None, known: int = 96) -> s.StepsRow:
    late = late_from is not None
    heat: list[int | None] = [
        (38 + at % 5)
        if late_from is not None and at >= late_from
        else (7 if at % 29 == rank else 0)
        for at in range(known)
    ]
    return s.StepsRow(
        rank=rank,
        host=f"node-{'ab'[rank // 4]}",
        work_s=0.263 if late else 0.161 + rank / 1000,
        waited_s=0.001 if late else 0.101,
        late_s=0.1 if late else 0.0,
        phase="data" if late else "",
        factor=33.0 if late else None,
        late_percent=heat,
    )


def steps_view(*, late: bool = False, odd: bool = False, known: int = STEPS) -> s.StepsView:
    numbers = list(range(NEWEST - known + 1, NEWEST + 1))
    slower = [at >= known - 40 for at in range(known)] if late else [False] * known
    step_s: list[float | None] = [
        0.163 + 0.003 * math.sin(at * 2.3) + (0.1 if slow else 0.0)
        for at, slow in enumerate(slower)
    ]
    loss: list[float | None] = [
        2.3 + 1.2 * math.exp(-at / 40) + 0.02 * math.sin(at * 1.7) for at in range(known)
    ]
    anomalies = []
    if odd:
        loss[known - 6], step_s[known - 30] = float("nan"), 0.72
        anomalies = [
            s.StepAnomaly(
                step=numbers[known - 6], what="loss not finite", value=math.nan, usual=None
            ),
            s.StepAnomaly(step=numbers[known - 30], what="slow step", value=0.72, usual=0.163),
        ]
    rows = [_row(rank, 56 if late and rank == 5 else None) for rank in range(8)]
    own = [0.003 + 0.1 * slow for slow in slower[-32:]]
    return s.StepsView(
        run="20261129-163000-k3f9ab",
        step=NEWEST,
        steps=numbers,
        step_s=step_s,
        loss=loss,
        phase_s={
            "data": [0.003 + (0.0125 if slow else 0.0) for slow in slower],
            "forward": [0.051] * known,
            "backward": [0.092 + (0.0875 if slow else 0.0) for slow in slower],
            "optimizer": [0.017] * known,
            "other": [0.0] * known,
        },
        waited_s=[0.012 + (0.0875 if slow else 0.0) for slow in slower],
        anomalies=anomalies,
        late_steps=numbers[-96:],
        ranks=rows,
        left_out=0,
        findings=[STRAGGLER] if late else [],
        rank_steps=numbers[-32:],
        rank_phase_s={
            "data": own,
            "forward": [0.051] * 32,
            "backward": [0.091] * 32,
            "optimizer": [0.017] * 32,
            "other": [0.0] * 32,
        },
        rank_waited_s=[0.001] * 32,
    )


def alone_view() -> s.StepsView:
    """One rank, and few steps yet."""
    view = steps_view(known=12)
    row = msgspec.structs.replace(view.ranks[0], waited_s=None, late_s=None, late_percent=[])
    return msgspec.structs.replace(view, ranks=[row], late_steps=[], rank_steps=[])


def empty_view() -> s.StepsView:
    return msgspec.structs.replace(
        steps_view(known=12), steps=[], step_s=[], loss=[], phase_s={}, waited_s=[], ranks=[]
    )


def outcome(step: int, age_s: float, **changes: object) -> s.SaveOutcome:
    base = s.SaveOutcome(
        step=step,
        request=0,
        ok=True,
        age_s=age_s,
        path=f"/data/runs/gpt/step-{step:08}",
        text="",
        rank=None,
        phase="",
        size_bytes=21_600_000_000,
    )
    return msgspec.structs.replace(base, **changes)


def command(name: str, state: str, text: str, **changes: object) -> s.Command:
    base = s.Command(
        request=7, command=name, author="ada@laptop", age_s=4.0, state=state, text=text
    )
    return msgspec.structs.replace(base, **changes)


POSSIBLE = {
    "checkpoint": "",
    "checkpoint-and-stop": "",
    "stop": "",
    "pause": "",
    "resume": "the run is not paused",
    "cancel": "there is nothing to cancel",
}
FAILED_TEXT = "rank 3, writing: No space left on device"


def checkpoints_view(*, saving: bool = False, failed: bool = False) -> s.CheckpointsView:
    rows = [
        s.SaveRow(
            rank=rank,
            step=NEWEST,
            request=7,
            phase="writing" if rank != 2 else "syncing",
            phase_s=3.1 + rank / 10,
            done_bytes=2_700_000_000 if rank == 2 else (12 - rank) * 180_000_000,
            total_bytes=2_700_000_000,
            rate_bytes_per_s=None if rank == 2 else 620e6 - 60e6 * rank,
        )
        for rank in range(8)
    ]
    outcomes = [outcome(12000, 660.0), outcome(11000, 4300.0)]
    if failed:
        outcomes.insert(
            0, outcome(12400, 42.0, ok=False, path="", text=FAILED_TEXT, rank=3, size_bytes=0)
        )
        outcomes.insert(
            1,
            outcome(12300, 190.0, ok=False, path="", text="cancelled by ada@laptop", size_bytes=0),
        )
    work = command("checkpoint", "saving", "all ranks are saving", step=NEWEST)
    return s.CheckpointsView(
        run="20261129-163000-k3f9ab",
        pending="saving" if saving else "",
        request=7 if saving else 0,
        ranks=rows if saving else [],
        left_out=0,
        slowest=7 if saving else None,
        outcomes=outcomes,
        last=s.Checkpoint(step=12000, path="/data/runs/gpt/step-00012000", verified=True),
        command=work if saving else None,
        commands=[command("checkpoint", "given-up", FAILED_TEXT, ended_age_s=42.0)]
        if failed
        else [],
        possible=POSSIBLE
        | ({"checkpoint": "a checkpoint is in work already", "cancel": ""} if saving else {}),
        note="checkpoint asked for by ada@laptop: all ranks are saving" if saving else "",
    )


def no_checkpoints() -> s.CheckpointsView:
    why = "rank 0 gave no boundary: its loop does not call end_step"
    return msgspec.structs.replace(
        checkpoints_view(), outcomes=[], last=None, possible=dict.fromkeys(POSSIBLE, why)
    )


def over_view() -> s.CheckpointsView:
    """Of a run that an operator stopped; its ages are as of long after that."""
    stop = s.Command(
        request=9,
        command="stop",
        author="ada@laptop",
        age_s=4000.0,
        state="done",
        text="training stops after step 12480",
        step=12480,
        ended_age_s=3999.0,
    )
    over = dict.fromkeys(POSSIBLE, "the run is over")
    return msgspec.structs.replace(checkpoints_view(), possible=over, commands=[stop])


def incident(id_: str, event: str, ago_s: float, found: s.Finding) -> s.Incident:
    return s.Incident(
        id=id_,
        event="opened" if event == "opened" else "closed",
        at_s=HUB_S - ago_s,
        attempt=0,
        finding=found,
        last_checkpoint=s.Checkpoint(
            step=12000, path="/data/runs/gpt/step-00012000", verified=True
        ),
    )


def log() -> s.Incidents:
    asked = finding(
        "command",
        [],
        [],
        "ada@laptop asked for a checkpoint: done, step 12000, /data/runs/gpt/step-00012000",
        severity="info",
        step=12000,
        evidence=[],
    )
    return s.Incidents(
        incidents=[
            incident("a", "opened", 90000.0, asked),
            incident("a", "closed", 89988.0, asked),
            incident("b", "opened", 900.0, STRAGGLER),
            incident("b", "closed", 640.0, STRAGGLER),
            incident("c", "opened", 42.0, DEAD),
        ]
    )


def memory_view(*, growing: bool = False, ranks: int = 8) -> s.MemoryView:
    """Of a run at step 272; ``growing``: rank 5 takes 4 MB more with each step."""
    rows = [
        s.MemoryRow(
            rank=rank,
            host=f"node-{'ab'[rank // 4]}",
            resident_bytes=512_000_000 + 3_000_000 * rank,
            peak_resident_bytes=600_000_000 + 3_000_000 * rank,
            allocated_bytes=None,
            reserved_bytes=None,
            peak_allocated_bytes=None,
            limit_bytes=1_000_000_000,
            growth_bytes_per_step=4_194_304.0 if growing and rank == 5 else 0.0,
            full_at_step=388 if growing and rank == 5 else None,
            history_bytes=[
                400_000_000 + (at * 4_000_000 if growing and rank == 5 else at % 7 * 1_000_000)
                for at in range(68)
            ],
            state_bytes=6_956_144,
            predicted_state_bytes=6_956_032.0,
        )
        for rank in range(ranks)
    ]
    return s.MemoryView(
        run="20251129-160000-a1b2c3",
        steps=[4 * at for at in range(1, 69)],
        ranks=rows,
        left_out=0,
        findings=[MEMORY_GROWTH] if growing else [],
        prediction="869 504 parameters × (4+4+8) bytes, fully sharded over 8 ranks",
    )
