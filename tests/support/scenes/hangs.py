"""Snapshots of runs that do not move, with the views of their screens."""

from dataclasses import replace

from rankscope.protocol import shapes as s
from rankscope.protocol.shapes import Shape
from rankscope.tui.feed.poller import Snapshot
from support.scenes import run

MISSING = s.Finding(
    kind="missing-collective",
    severity="critical",
    ranks=[5],
    victims=[0, 1, 2, 3, 4, 6, 7],
    step=12998,
    since_s=42.0,
    headline="rank 5 never entered all_reduce #18233: at data.py:118 in read_shard; 7 ranks wait",
    evidence=[
        "rank 5 is in forward of step 12998, at data.py:118 in read_shard",
        "stack of rank 5, from itself: data.py:118 read_shard < data.py:80 collate < "
        "train.py:44 train",
        "ranks 0, 1, 2, 3, 4, 6 and 7 wait in all_reduce [1024] -> [1024] float32, #18233 of the "
        "default group, called at train.py:61 in train",
    ],
    next="see where it is: rankscope stacks --rank 5",
    where={
        "collective": "nccl:all_reduce",
        "source": "data.py:118 in read_shard",
        "phase": "forward",
    },
)


def frame(file: str, line: int, function: str) -> s.FrameRow:
    return s.FrameRow(file=f"/home/ada/{file}", line=line, function=function)


def row(group: str, description: str, **changes: object) -> s.CollectiveRow:
    return s.CollectiveRow(
        **{  # type: ignore[arg-type]
            "group": group,
            "description": description,
            "backend": "nccl",
            "size": 8,
            "enqueued_least": 18233,
            "enqueued_most": 18233,
            "completed_least": 18233,
            "behind": [],
            "waiting": [],
            "operation": "",
            "source": "",
        }
        | changes
    )


MISSING_GROUPS = s.Collectives(
    run="run",
    groups=[
        row(
            "0",
            "default_pg",
            enqueued_least=18232,
            completed_least=18232,
            behind=[5],
            waiting=[0, 1, 2, 3, 4, 6, 7],
            operation="all_reduce [1024] -> [1024] float32",
            source="train.py:61 in train",
        ),
        row("1", "mesh_tp", size=4, enqueued_least=512, enqueued_most=512, completed_least=512),
        row("7", "undefined", size=2, enqueued_least=0, enqueued_most=0, completed_least=0),
    ],
    findings=[MISSING],
)

STACKS = s.StacksView(
    run="run",
    groups=[
        s.StackGroup(
            ranks=[5],
            frames=[
                frame("data.py", 118, "read_shard"),
                frame("data.py", 80, "collate"),
                frame("train.py", 44, "train"),
            ],
            from_outside=True,
            source="data.py:118 in read_shard",
            age_s=1.2,
        ),
        s.StackGroup(
            ranks=[0, 1, 2, 3, 4, 6],
            frames=[
                s.FrameRow(file="/lib/torch/distributed/c10d.py", line=3252, function="all_reduce"),
                *(frame("train.py", 61 - i, f"inner{i}") for i in range(9)),
            ],
            from_outside=False,
            source="train.py:61 in train",
            age_s=0.4,
        ),
    ],
    missing=[7],
    notes=["rank 7: no stack: allow ptrace (kernel.yama.ptrace_scope is 2)"],
)

MANY_STACKS = s.StacksView(
    run="run",
    groups=[
        s.StackGroup(
            ranks=ranks,
            frames=[frame("train.py", 61, "train")],
            from_outside=False,
            source=f"train.py:{line} in train",
            age_s=0.4,
        )
        for line, ranks in ((40, [4095]), (61, list(range(4095))))
    ],
    missing=[],
    notes=[],
)


def hung(view: Shape | None) -> Snapshot:
    """Eight ranks of which seven wait for rank 5."""
    return replace(run(state="stalled", findings=[MISSING], stalled_s=42.0), view=view)


def well(view: Shape | None) -> Snapshot:
    return replace(run(), view=view)


COLLECTIVES = {
    "collectives-missing": lambda: hung(MISSING_GROUPS),
    "collectives-healthy": lambda: well(
        s.Collectives(run="run", groups=[row("0", "default_pg")], findings=[])
    ),
    "collectives-none": lambda: well(
        s.Collectives(run="run", groups=[], findings=[], note="no collective was seen yet")
    ),
    "collectives-asking": lambda: well(None),
}
STACK_SCENES = {
    "stacks-missing": lambda: hung(STACKS),
    "stacks-many": lambda: hung(MANY_STACKS),
    "stacks-asking": lambda: well(s.StacksView(run="run", groups=[], missing=[], notes=[])),
}
SCENES = COLLECTIVES | STACK_SCENES
