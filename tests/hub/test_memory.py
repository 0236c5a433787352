"""Memory that grows, memory that runs out, and what is neither."""

import random
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from rankscope.hub import snapshot
from rankscope.hub.state.memory import BUCKETS, MemoryHistory
from rankscope.protocol import messages as m
from support.world import World

MIB = 1 << 20
Curve = Callable[[int], float]


def on_cpu(taken: float, **changes: int) -> m.Memory:
    size = int(taken)
    return m.Memory(None, None, None, None, None, size + 50 * MIB, size, size, **changes)


def on_gpu(peak: float, total: int = 80 << 30) -> m.Memory:
    size = int(peak)
    return m.Memory(size // 2, size, size, size, total, 1 << 30, 1 << 30)


def run(curve: Curve, steps: int, *, ranks: int = 2, grows: tuple[int, ...] = (1,)) -> World:
    """Ranks that take 400 MiB, and ``curve(step)`` MiB more on those that grow."""
    world = World(ranks=ranks)
    for step in range(1, steps + 1):
        world.step()
        for rank in range(ranks):
            more = curve(step) if rank in grows else 0.0
            world.beat(rank, memory=on_cpu((400 + more) * MIB))
    return world


def noisy(curve: Curve, size: float = 15.0, seed: int = 0) -> Curve:
    """Readings at any moment of a step: now and then below what the step takes at most."""
    chance = random.Random(seed)
    return lambda step: curve(step) - size * chance.random() ** 3


def ramp(since: int, a_step: float) -> Curve:
    return lambda step: max(0, step - since) * a_step


def test_memory_that_grows_is_told_within_twenty_steps_of_being_seen() -> None:
    """4 MiB a step under noise of 15 MiB, from step 12 on."""
    world = run(noisy(ramp(12, 4.0)), 34)
    finding = world.finding("memory-growth")
    assert (finding.ranks, finding.severity, finding.step) == ([1], "warning", None)
    assert "memory of rank 1 grows by" in finding.headline
    assert finding.evidence[0].startswith("rank 1: ")


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_no_growth(seed: int) -> None:
    """However long, and however large it is beside what is taken."""
    world = World(ranks=4)
    curve = noisy(lambda _: 150.0, 140.0, seed)
    for step in range(150):
        world.step()
        for rank in range(4):
            world.beat(rank, memory=on_cpu((400 + curve(0)) * MIB))
        assert step % 3 or world.kinds() == []


@pytest.mark.parametrize(
    "curve",
    [
        lambda step: 300.0 if step > 20 else 0.0,  # an evaluation takes more from then on
        lambda step: 300.0 * min(step, 5) / 5,  # the first steps
        lambda step: 200.0 * (step % 40 < 20),  # it comes back
        lambda step: 0.3 * step,  # too little to speak of, yet
    ],
)
def test_what_is_no_growth(curve: Curve) -> None:
    """Steps up, warming up, coming and going."""
    world = World(ranks=1)
    for step in range(1, 60):
        world.step()
        world.beat(0, memory=on_cpu((400 + curve(step)) * MIB))
        assert world.kinds() == [], step


def test_slow_growth_is_told_from_the_whole_run() -> None:
    """100 kB a step is nothing in 32 steps, and much in 1,500."""
    world = run(noisy(ramp(0, 0.1)), 1500)
    assert world.finding("memory-growth").ranks == [1]


def test_it_is_told_no_more_once_it_has_ended() -> None:
    """The newest steps are flat."""
    world = run(lambda step: ramp(12, 4.0)(min(step, 40)), 80)
    assert world.kinds() == []


def test_growth_of_all_ranks_is_one_finding() -> None:
    """As of a loss that the script keeps."""
    world = run(ramp(10, 8.0), 60, ranks=8, grows=tuple(range(8)))
    finding = world.finding("memory-growth")
    assert finding.ranks == list(range(8))
    assert "ranks 0–7 grows by up to 8.39 MB a step" in finding.headline


def test_of_a_gpu_the_peak_is_followed() -> None:
    """And what is left of the device is said."""
    world = World(ranks=2)
    for step in range(1, 60):
        world.step()
        for rank in range(2):
            world.beat(rank, memory=on_gpu((10 << 30) + rank * step * 32 * MIB))
    finding = world.finding("memory-growth")
    assert finding.ranks == [1]
    assert "of GPU memory left, used up at step" in finding.evidence[0]


def test_running_out_is_forecast_before_it_happens_and_stays_told() -> None:
    """16 MiB a step below a limit half a GiB away, and then it stops just short of it."""
    world = World(ranks=2)
    told = []
    limit = 6000 * MIB
    for step in range(1, 60):
        world.step()
        world.beat(0, memory=on_cpu(400 * MIB))
        taken = min(max(0, step - 12) * 16, 486) * MIB
        limits = {"limit_bytes": limit, "limited_bytes": limit - 512 * MIB + taken}
        world.beat(1, memory=on_cpu(400 * MIB + taken, **limits))
        told.append(world.kinds())
    assert told[26] == ["out-of-memory-forecast"]
    assert told[-1] == ["out-of-memory-forecast"]
    finding = world.finding("out-of-memory-forecast")
    assert (finding.ranks, finding.severity) == ([1], "critical")
    assert "of address space (ulimit -v) left" in finding.headline


def test_a_node_that_runs_out_is_forecast_for_those_who_take_it() -> None:
    """What all its ranks take together counts."""
    world = World(ranks=2, per_node=1)
    for step in range(1, 60):
        world.step()
        for rank in range(2):
            world.beat(rank, memory=on_cpu(400 * MIB + step * 20 * MIB))
    for host, left in (("node-0", 100 << 30), ("node-1", 1 << 30)):
        world.from_node(
            host, m.NodeReport, processes=(), memory_available_bytes=left, memory_limit_bytes=None
        )
    first, second = world.findings()
    assert (first.kind, first.ranks) == ("out-of-memory-forecast", [1])
    assert "memory of node-1 left" in first.headline
    assert (second.kind, second.ranks) == ("memory-growth", [0])


def test_a_gpu_that_is_full_from_the_start_is_not_running_out() -> None:
    """A run that takes 79 of 80 GB all the time is well filled."""
    world = World(ranks=1)
    for _ in range(60):
        world.step()
        world.beat(0, memory=on_gpu(79 << 30))
    assert world.kinds() == []


def test_the_whole_run_is_kept_in_few_numbers() -> None:
    """Spans double in length as the run goes on; the largest reading of each is kept."""
    history = MemoryHistory()
    history.reserve(2)
    for step in range(1, 1001):
        history.reading(1, step, 0, on_cpu(1000.0 * step))
    assert history.stride.tolist() == [1, 16]
    assert np.isnan(history.spans[0]).all()
    assert history.spans[1, :2].tolist() == [16_000.0, 32_000.0]
    assert np.nanmax(history.spans[1]) == 1_000_000.0
    assert (~np.isnan(history.spans[1])).sum() == 63 <= BUCKETS


def test_the_history_outlives_the_hub_and_not_the_attempt() -> None:
    """A snapshot has the whole run; a new attempt begins anew."""
    world = run(ramp(0, 1.0), 100)
    again = snapshot.load(snapshot.dump(world.state))
    np.testing.assert_array_equal(again.memory.spans, world.state.memory.spans)
    world.new_attempt()
    assert np.isnan(world.state.memory.spans).all()


def test_the_view_has_every_rank_over_the_same_steps() -> None:
    """Growth, limit and the step at which it is full; a rank that came late has no gap."""
    world = World(ranks=3)
    for step in range(1, 101):
        world.step()
        for rank in range(3):
            if rank < 2 or step > 50:
                taken = on_cpu((400 + rank % 2 * 4 * step) * MIB, limit_bytes=6000 * MIB)
                world.beat(rank, memory=msgspec.structs.replace(taken, limited_bytes=2000 * MIB))
    world.tick()
    view = world.view("memory")
    assert view.steps[-3:] == [96, 98, 100]
    assert {len(row.history_bytes) for row in view.ranks} == {len(view.steps)}
    flat, growing, late = view.ranks
    assert (flat.growth_bytes_per_step, flat.full_at_step) == (0.0, None)
    assert growing.growth_bytes_per_step == pytest.approx(4 * MIB, rel=0.1)
    assert growing.full_at_step == pytest.approx(1100, abs=110)
    assert growing.limit_bytes == 6000 * MIB
    assert set(late.history_bytes) == {400 * MIB}
    assert [finding.kind for finding in view.findings] == ["memory-growth"]


def test_a_large_world_shows_the_ranks_that_grow() -> None:
    """And says how many are left out."""
    world = World(ranks=600)
    for step in range(1, 20):
        world.step()
        for rank in range(600):
            world.beat(rank, memory=on_cpu((400 + (rank == 3) * 16 * step) * MIB))
    view = world.view("memory")
    assert (len(view.ranks), view.left_out) == (512, 88)
    assert 3 in [row.rank for row in view.ranks if row.growth_bytes_per_step]


def test_the_view_of_a_run_without_readings_is_empty() -> None:
    """Ranks that have told nothing yet."""
    view = World(ranks=2).view("memory")
    assert (view.ranks, view.steps, view.left_out) == ([], [], 0)
