"""Who is late in a run whose ranks all take equally long for a step, and in which phase."""

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from rankscope.hub.diagnose.straggler import times
from rankscope.protocol import messages as m
from support.world import START_S, World

PHASES = ("data", "forward", "backward", "optimizer", "other")
USUAL_S = (0.002, 0.030, 0.060, 0.008, 0.005)

Work = Callable[[int, int], tuple[float, ...]]
"""(rank, step) to the seconds of work in each phase."""


def meeting(phase: int) -> int:
    """The phase in which others wait for work in ``phase``: where the next collective is."""
    return {0: 4, 1: 2, 2: 2, 3: 4, 4: 4}[phase]


def recorded(step: int, t_s: float, step_s: float, took_s: Sequence[float]) -> m.StepRecord:
    return m.StepRecord(
        step,
        t_s,
        step_s,
        *(took_s[0], took_s[1], took_s[2], took_s[3], took_s[4]),
        microbatches=1,
    )


def train(
    world: World, work: Work, steps: int, *, sharded: bool = False, waits: bool = True
) -> World:
    """Steps in which every rank waits for the slowest, phase by phase."""
    for number in range(1, steps + 1):
        step = max(sim.step for sim in world.ranks.values()) + 1
        done = {rank: list(work(rank, step)) for rank in world.ranks}
        took = {rank: list(phases) for rank, phases in done.items()}
        waited = {rank: [0.0] * 5 for rank in done}
        for phase in range(5):
            slowest = max(phases[phase] for phases in done.values())
            place = phase if sharded else meeting(phase)
            for rank, phases in done.items():
                wait = slowest - phases[phase]
                took[rank][place] += wait
                waited[rank][place] += wait
        step_s = max(sum(phases) for phases in took.values())
        world.now_s += step_s
        for rank, sim in world.ranks.items():
            sim.step += 1
            sim.activity += 4
            record = recorded(sim.step, world.now_s + sim.clock_s, step_s, took[rank])
            if waits:
                record = msgspec.structs.replace(record, waited_s=tuple(waited[rank]))
            world.beat(rank, steps=(record,))
        if number % 8 == 0 or number == steps:
            world.tick()
    return world


def slow_in(phase: int, extra_s: float, rank: int = 1, since: int = 12) -> Work:
    def work(who: int, step: int) -> tuple[float, ...]:
        late = who == rank and step >= since
        return tuple(s + extra_s * late * (at == phase) for at, s in enumerate(USUAL_S))

    return work


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("phase", range(5))
def test_the_slow_rank_and_its_phase_are_found(phase: int, ranks: int, sharded: bool) -> None:
    """Within ten slow steps, although all ranks' steps are equally long."""
    world = train(World(ranks=ranks), slow_in(phase, 0.1), 21, sharded=sharded)
    finding = world.finding("straggler")
    assert (finding.ranks, finding.where) == ([1], {"phase": PHASES[phase]})
    assert finding.victims == [rank for rank in range(ranks) if rank != 1]
    assert "since step 12" in finding.headline
    assert any("in each step, rank 1 waits" in line for line in finding.evidence)


def test_how_much_and_how_long_is_said() -> None:
    """First a notice; a warning once it is steady."""
    world = train(World(ranks=4), slow_in(2, 0.04), 22)
    first = world.finding("straggler")
    assert (first.severity, "so far since step 12" in first.headline) == ("info", True)
    assert "0.10 s where others take 60 ms (1.7×)" in first.headline
    train(world, slow_in(2, 0.04), 160)
    later = world.finding("straggler")
    assert (later.severity, "steady since step 12" in later.headline) == ("warning", True)
    assert later.since_s > 20


def test_a_rank_that_costs_nearly_half_of_each_step_is_a_warning_at_once() -> None:
    """Nobody needs to wait until it is steady."""
    assert train(World(ranks=2), slow_in(1, 0.3), 21).finding("straggler").severity == "warning"


@pytest.mark.parametrize("told", [True, False])
def test_what_other_programs_take_is_a_notice_until_it_has_lasted_a_minute(told: bool) -> None:
    """Where the sentinel tells who had no core; else it is as grave as it looks."""
    world = World(ranks=2)
    severities = []
    while world.now_s - START_S < 100:
        for rank, sim in world.ranks.items():
            sim.queued_s = (world.now_s - START_S) * (0.6 if rank else 0.05) if told else None
        world.report("node-0")
        train(world, slow_in(2, 0.3), 2)
        found = [one for one in world.findings() if one.kind == "straggler"]
        severities += [(one.severity, one.since_s >= 60) for one in found]
        crowded = any("rank 1 could run and has no core for 60%" in f.evidence[-1] for f in found)
        assert crowded is bool(told and found)
        assert all(("what else runs on node-0" in one.next) is told for one in found)
    assert ("warning", True) in severities
    assert (("warning", False) in severities) is not told


def test_where_all_ranks_want_cores_alike_nobody_is_slow_for_want_of_one() -> None:
    """What a rank takes longer than the others is of its own then."""
    world = World(ranks=2)
    for _ in range(30):
        for sim in world.ranks.values():
            sim.queued_s = (world.now_s - START_S) * 0.6
        world.report("node-0")
        train(world, slow_in(2, 0.3), 1)
    assert world.finding("straggler").severity == "warning"


def test_it_is_over_when_the_rank_is_as_fast_as_the_others() -> None:
    """The finding closes itself."""
    world = train(World(ranks=2), slow_in(1, 0.1), 24)
    assert world.kinds() == ["straggler"]
    train(world, lambda rank, step: USUAL_S, 10)
    assert world.kinds() == []


@pytest.mark.parametrize("seed", range(3))
def test_noise_on_a_loaded_machine_is_no_straggler(seed: int) -> None:
    """Four ranks on two cores: any of them may be late, by more than a whole step."""
    chance = random.Random(seed)

    def work(rank: int, step: int) -> tuple[float, ...]:
        return tuple(s * (1 + 2 * chance.random() ** 2) for s in USUAL_S)

    world = World(ranks=4)
    for _ in range(20):
        train(world, work, 10)
        assert world.kinds() == []


def test_passing_pauses_are_no_straggler() -> None:
    """A checkpoint, a garbage collection, an evaluation on one rank, now and then."""

    def work(rank: int, step: int) -> tuple[float, ...]:
        pause = 5.0 if rank == 0 and step % 7 == 0 else 0.0
        return (*USUAL_S[:4], USUAL_S[4] + pause)

    world = World(ranks=2)
    for _ in range(10):
        train(world, work, 5)
        assert world.kinds() == []


def test_who_holds_up_nobody_is_no_straggler() -> None:
    """Others that do not wait for it do not suffer: local steps, or a pipeline's stages."""
    world = World(ranks=2)
    for _ in range(40):
        for rank, sim in world.ranks.items():
            sim.step += 1
            took = (0.0, 0.03 + 0.1 * rank, 0.06, 0.0, 0.0)
            record = msgspec.structs.replace(
                recorded(sim.step, 0.0, 0.2, took), waited_s=(0.0, 0.0, 0.001, 0.0, 0.0)
            )
            world.beat(rank, steps=(record,))
        world.now_s += 0.2
        world.tick()
    assert world.kinds() == []


@pytest.mark.parametrize(("phase", "told"), [(0, True), (1, True), (2, False), (3, True)])
def test_without_waits_only_phases_without_waiting_are_trusted(phase: int, told: bool) -> None:
    """Of the backward nothing can be said then: all ranks' are equally long."""
    world = train(World(ranks=2), slow_in(phase, 0.1), 30, waits=False)
    assert world.kinds() == (["straggler"] if told else [])


def test_a_slow_node_is_one_finding() -> None:
    """Two of eight ranks are slow in the same phase."""

    def work(rank: int, step: int) -> tuple[float, ...]:
        return slow_in(2, 0.1, rank=rank if rank in (4, 5) else -1)(rank, step)

    world = train(World(ranks=8, per_node=2), work, 30)
    finding = world.finding("straggler")
    assert finding.ranks == [4, 5]
    assert finding.victims == [0, 1, 2, 3, 6, 7]


def test_a_throttled_gpu_is_given_as_the_cause() -> None:
    """Where the sentinel of its node sees one."""
    world = World(ranks=2)
    for rank in range(2):
        world.hello(rank, device=f"cuda:{rank}")
    gpus = tuple(
        m.GpuSample(
            i, "H", 99.0, 1, 2, 85.0, 300.0, 900.0, ("hw_thermal_slowdown",) * i, None, None
        )
        for i in range(2)
    )
    world.from_node("node-0", m.NodeReport, processes=(), gpus=gpus)
    found = [f for f in train(world, slow_in(2, 0.1), 30).findings() if f.kind == "straggler"]
    assert "GPU 1 of node-0 is throttled: hw thermal slowdown" in found[0].evidence


def test_it_is_learnt_anew_in_another_attempt() -> None:
    """What one life of the ranks was like says nothing of the next."""
    world = train(World(ranks=2), slow_in(1, 0.1), 30)
    world.new_attempt()
    train(world, lambda rank, step: USUAL_S, 20)
    assert world.kinds() == []


@pytest.mark.parametrize(
    ("factor", "text"), [(1.66, "1.7×"), (99.94, "99.9×"), (526.4, "over 100×")]
)
def test_a_factor_is_told_by_what_it_means(factor: float, text: str) -> None:
    """Digits beyond what was measured are left out."""
    assert times(factor) == text


def test_of_ranks_whose_steps_are_not_known_nothing_is_said() -> None:
    """Such as right after all of them began anew."""
    world = train(World(2), slow_in(2, 0.0), 40)
    world.core.state.paces.step_s[:] = float("nan")
    world.tick()
    assert "straggler" not in [one.kind for one in world.status().findings]
