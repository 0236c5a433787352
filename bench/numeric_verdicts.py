"""What the verdicts on numbers cost the hub at 16,384 ranks: a round of comparing and judging."""

import math
import time

import _figure

from rankscope.hub.diagnose.duplicate_data import duplicate_data
from rankscope.hub.diagnose.gradient_outlier import gradient_outlier
from rankscope.hub.diagnose.nonfinite import nonfinite
from rankscope.hub.diagnose.replica_divergence import replica_divergence
from rankscope.hub.diagnose.silent_skip import silent_skip
from rankscope.hub.incidents import Incidents
from rankscope.hub.state import RunState
from rankscope.hub.views import Knowledge, encoded, view
from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage

RANKS = 16_384
ROUNDS = 5
PAST = 32
LIMIT_MS = 50.0
KINDS = (nonfinite, gradient_outlier, replica_divergence, silent_skip, duplicate_data)


class World:
    """All ranks in step, with numbers of their own."""

    def __init__(self, ranks: int) -> None:
        self.state = RunState("bench")
        self.ranks = ranks
        self.seq = [1] * ranks
        self.step = 0
        for rank in range(ranks):
            self.state.apply(
                m.Hello(0, rank, 1, 0.0, "bench", ranks, rank % 8, f"node-{rank // 8}", 1000 + rank,
                        "bench", "ddp", f"cuda:{rank % 8}", 0, True, {}),
                1000.0,
            )  # fmt: skip

    def say(self, kind: type[m.FromRank], rank: int, /, **fields: object) -> None:
        self.seq[rank] += 1
        message = kind(0, rank, self.seq[rank], float(self.step), **fields)
        self.state.apply(message, 1000.0 + self.step)

    def complete(self, changes: dict[int, float] | None = None) -> float:
        """One step of all ranks; what taking in its records cost, seconds a rank."""
        self.step += 1
        beats = []
        for rank in range(self.ranks):
            self.seq[rank] += 1
            norm = 1.0 + 0.3 * math.sin(self.step + rank)
            record = m.StepRecord(
                self.step, float(self.step), 0.1, 0.0, 0.03, 0.05, 0.01, 0.0, 1, 2.5, 4096, 0.8,
                local_norm=(changes or {}).get(rank, norm), updated=True,
                fingerprint=self.step * 1_000_003 + rank,
            )  # fmt: skip
            beats.append(
                m.Beat(0, rank, self.seq[rank], float(self.step), self.step, 1, m.Phase.FORWARD,
                       float(self.step), self.step, steps=(record,))
            )  # fmt: skip
        start = time.process_time()
        for beat in beats:
            self.state.apply(beat, 1000.0 + self.step)
        return (time.process_time() - start) / self.ranks

    def round_s(self) -> float:
        """Comparing what came, and judging it."""
        now_s = 1000.0 + self.step
        start = time.process_time()
        self.state.tick(now_s)
        for kind in KINDS:
            kind(self.state, now_s)
        return time.process_time() - start


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    world = World(RANKS)
    for _ in range(PAST):
        world.complete()
        world.state.tick(1000.0 + world.step)
    record_s = []

    def measured(case: str, rounds: int = ROUNDS, changes: dict[int, float] | None = None) -> None:
        costs = []
        for _ in range(rounds):
            record_s.append(world.complete(changes))
            costs.append(world.round_s())
        found = [f.kind for kind in KINDS for f in kind(world.state, 1000.0 + world.step)]
        _figure.figure(
            "numeric_verdicts.round", median(costs) * 1e3, "ms", LIMIT_MS,
            ranks=RANKS, case=case, found=found, worst_ms=max(costs) * 1e3,
        )  # fmt: skip

    measured("healthy")
    measured("an outlier", 1, {7: 1e5})
    for rank in range(RANKS):
        world.say(m.Checksums, rank, step=world.step, first=0, total=int(rank == 9))
    measured("replicas differ")
    at = world.step + 1
    culprit = m.Sign(Stage.GRADIENT, at, 1, "blocks.1.mlp.up.weight", "nan", 1)
    world.say(m.Signs, 5, step=at, signs=(culprit,), looked=(Stage.GRADIENT,))
    for rank in range(RANKS):
        signs = tuple(
            m.Sign(stage, at, 0, "blocks.1.mlp.up.weight", "nan", 1)
            for stage in (Stage.REDUCED, Stage.UPDATED)
        )
        world.say(m.Signs, rank, step=at, signs=signs, looked=(Stage.REDUCED, Stage.UPDATED))
    measured("a NaN that reached all ranks")
    _figure.figure("numeric_verdicts.record", median(record_s) * 1e6, "us", None, ranks=RANKS)
    know = Knowledge(world.state, Incidents(), [], 1000.0 + world.step)
    costs = []
    for _ in range(ROUNDS):
        start = time.process_time()
        body = bytes(encoded(view(know, m.ViewRequest(1, "numerics"), 0, 1000.0 + world.step)))
        costs.append(time.process_time() - start)
    _figure.figure(
        "numeric_verdicts.view", median(costs) * 1e3, "ms", None, ranks=RANKS, bytes=len(body)
    )


if __name__ == "__main__":
    main()
