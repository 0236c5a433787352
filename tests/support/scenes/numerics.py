"""Snapshots of runs in which numbers went wrong: what the screen of numerics is handed."""

import math
from dataclasses import replace

from rankscope.protocol import shapes as s
from rankscope.tui.feed.poller import Snapshot
from support import scenes

STEPS = list(range(12421, 12481))
PARAMETER = "blocks.1.mlp.up.weight"


def norms(rank: int, at: float | None = None) -> list[float | None]:
    """A quiet course, a little different on each rank; ``at`` is the newest norm."""
    course: list[float | None] = [
        (0.8 + 0.1 * rank) * math.exp(0.3 * math.sin(0.7 * step + rank)) for step in STEPS
    ]
    return course if at is None else [*course[:-1], at]


def row(rank: int, at: float | None = None, **changes: object) -> s.NumericsRow:
    course = norms(rank, at)
    fields: dict[str, object] = {
        "rank": rank,
        "step": STEPS[-1],
        "local_norm": course[-1],
        "distance": None if at is not None and not math.isfinite(at) else 0.1 * rank - 0.3,
        "norms": course,
        "loss": 2.3141 + rank / 1000,
        "loss_scale": None,
        "skipped": 0,
        "signs": 0,
    }
    return s.NumericsRow(**(fields | changes))  # type: ignore[arg-type]


NAN = scenes.finding(
    "nonfinite-gradient",
    [5],
    [0, 1, 2, 3, 4, 6, 7],
    f"NaN in the gradient of {PARAMETER} on rank 5 in step 12481, microbatch 2, before any "
    "reduction",
    since_s=0.6,
    evidence=[
        f"rank 5: own gradient of {PARAMETER}, microbatch 2: NaN, 1 element",
        "finite on rank 5 in that step: input, loss",
        "finite on ranks 0, 1, 2, 3, 4, 6 and 7: own gradient before reduction, norms 0.61 to 1.9",
        "what it spoilt in that step: reduced gradient on ranks 0–7; parameters after the update "
        "on ranks 0–7",
    ],
    next=f"look at what is done to {PARAMETER} in the backward: torch.autograd.detect_anomaly()",
    where={"parameter": PARAMETER, "microbatch": 2},
)

OUTLIER = scenes.finding(
    "gradient-outlier",
    [2],
    [],
    f"the gradient of rank 2 in step 12480 is 9,900 times its usual, most of it in {PARAMETER}",
    severity="warning",
    step=12480,
    since_s=3.0,
    evidence=["rank 2: norm 8.9e+03 before reduction; its usual 0.9, its peers in that step 0.88"],
    next="look at the data rank 2 read for step 12480",
    where={"parameter": PARAMETER},
)


def view(rows: list[s.NumericsRow], **changes: object) -> s.Numerics:
    fields: dict[str, object] = {
        "run": "20261129-163000-k3f9ab",
        "step": 12480,
        "steps": STEPS,
        "ranks": rows,
        "left_out": 0,
        "signs": [],
        "findings": [],
        "replicas_checked_step": 12480,
        "replicas_equal": True,
    }
    return s.Numerics(**(fields | changes))  # type: ignore[arg-type]


def parameters(first: s.ParameterRow) -> list[s.ParameterRow]:
    names = ("head.weight", "blocks.3.mlp.down.weight", "blocks.0.attention.qkv.weight")
    rest = [
        s.ParameterRow(name=name, local_norm=0.4 / (at + 1), value="")
        for at, name in enumerate(names)
    ]
    return [first, *rest]


def healthy() -> Snapshot:
    """Eight ranks, nothing wrong, no single parameters asked for yet."""
    return replace(scenes.healthy_8(), view=view([row(rank) for rank in range(8)]))


def nan() -> Snapshot:
    """A NaN in one rank's gradient, which the reduction carried to all."""
    rows = [row(rank, math.nan if rank == 5 else None, signs=1) for rank in range(8)]
    shown = view(
        rows,
        findings=[NAN],
        signs=[
            s.SignRow(
                rank=5,
                stage="gradient",
                step=12481,
                microbatch=2,
                name=PARAMETER,
                value="nan",
                count=1,
                others=0,
                note="",
            )
        ],
        parameters=parameters(s.ParameterRow(name=PARAMETER, local_norm=None, value="nan")),
        parameters_step=12481,
    )
    return replace(scenes.run(findings=[NAN]), view=shown)


def outlier() -> Snapshot:
    """A large gradient on one of 512 ranks; replicas differ since."""
    rows = [row(rank, 8.9e3 if rank == 2 else None) for rank in range(32)]
    rows[2] = row(2, 8.9e3, distance=30.7)
    shown = view(
        rows,
        findings=[OUTLIER],
        left_out=480,
        replicas_equal=False,
        parameters=parameters(s.ParameterRow(name=PARAMETER, local_norm=8.9e3, value="")),
        parameters_step=12480,
    )
    return replace(scenes.run(ranks=512, findings=[OUTLIER]), view=shown)


def not_told() -> Snapshot:
    """Nothing has been told of gradients, and the answer is not there yet."""
    return scenes.healthy_2()


SCENES = {"healthy": healthy, "nan": nan, "outlier": outlier, "waiting": not_told}
