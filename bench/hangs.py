"""What a round of verdicts about hangs costs at 16,384 ranks, with new evidence and without."""

import time
from collections.abc import Callable

import _figure

from rankscope.hub.diagnose.hangs import hangs
from rankscope.hub.state import RunState
from rankscope.protocol import messages as m

RANKS = 16_384
GROUP = 64
"""Ranks of a smaller group, beside the one of all ranks."""

ROUNDS = 5
STEPS = 20
LIMIT_MS = 50.0
CALLS = ("all_reduce", "all_gather", "reduce_scatter")


def operations(rank: int, odd: bool) -> tuple[m.Operation, ...]:
    """The newest collectives of a rank, two calls to the other ranks' one where it is odd."""
    return tuple(
        m.Operation(
            "0",
            seq,
            f"nccl:{CALLS[(seq + (odd and seq == 3 * STEPS + 1)) % 3]}",
            "[1024] -> [1024]",
            "float32",
            "completed" if seq <= 3 * STEPS else "scheduled",
        )
        for seq in range(3 * STEPS - 40, 3 * STEPS + 2)
    )


def training(missing: int | None, odd: int | None) -> RunState:
    """Ranks that have trained and stand still since t = 1002."""
    state = RunState("bench")
    everyone = m.Group("0", "default_pg", "nccl", RANKS, ())
    groups = [
        m.Group(
            str(1 + index), "dp", "nccl", GROUP, tuple(range(index * GROUP, (index + 1) * GROUP))
        )
        for index in range(RANKS // GROUP)
    ]
    for rank in range(RANKS):
        hello = m.Hello(
            *(0, rank, 1, 100.0, "bench", RANKS, rank % 8, f"node-{rank // 8}", 1000 + rank),
            *("bench", "ddp", f"cuda:{rank % 8}", 0, True, {}),
        )
        state.apply(hello, 1000.0)
        state.apply(m.Groups(0, rank, 2, 100.0, (everyone, groups[rank // GROUP])), 1000.0)
        record = m.StepRecord(STEPS, 102.0, 0.1, 0.0, 0.05, 0.05, 0.0, 0.0, 1)
        entered = 3 * STEPS + (rank != missing)
        statuses = (
            m.CollectiveStatus("0", entered, entered, 3 * STEPS),
            m.CollectiveStatus(str(1 + rank // GROUP), 7, 7, 7),
        )
        beat = m.Beat(
            *(0, rank, 3, 102.0, STEPS, 1, m.Phase.BACKWARD, 102.0, 4 * STEPS),
            steps=(record,),
            collectives=statuses,
        )
        state.apply(beat, 1002.0)
        if rank != missing:
            told = m.Operations(0, rank, 4, 102.5, "stalled", (), operations(rank, rank == odd))
            state.apply(told, 1002.5)
    state.ranks.heard_s[:] = 1010.0
    state.tick(1010.0)
    return state


def moves(state: RunState) -> None:
    state.ranks.moved_s[:] = 1010.0
    state.progress.moved_s[:] = 1010.0


def main() -> None:
    cases: dict[str, tuple[int | None, int | None, Callable[[RunState], None]]] = {
        "moving": (None, None, moves),
        "one missing": (RANKS // 2, None, lambda state: None),
        "one differs": (None, RANKS // 2, lambda state: None),
        "all in it": (None, None, lambda state: None),
    }
    for name, (missing, odd, prepare) in cases.items():
        state = training(missing, odd)
        prepare(state)
        for when, limit in (
            ("new groups", LIMIT_MS),
            ("new evidence", LIMIT_MS),
            ("later", LIMIT_MS),
        ):
            costs = []
            found = []
            for _ in range(ROUNDS):
                if when == "new groups":  # once, when they are made
                    state.progress.derived.clear()
                elif when == "new evidence":
                    for key in [key for key in state.progress.derived if "difference" in key]:
                        del state.progress.derived[key]
                start = time.process_time()
                found = hangs(state, [], 1010.0)
                costs.append(time.process_time() - start)
                state.inquiries.due(1010.0)
            _figure.figure(
                "hangs_diagnose",
                sorted(costs)[ROUNDS // 2] * 1e3,
                "ms",
                limit,
                ranks=RANKS,
                case=name,
                when=when,
                found=",".join(finding.kind for finding in found),
            )


if __name__ == "__main__":
    main()
