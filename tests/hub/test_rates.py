"""The speed of a run: while it steps, when it has stopped, and once it has ended."""

from itertools import pairwise

import pytest

from rankscope.hub import rates
from rankscope.hub.state.history import KEPT_STEPS, StepEntry
from support.world import World

Done = list[float]


def entries(done_s: Done, attempt: int = 0, first: int = 1) -> list[tuple[int, StepEntry]]:
    return [
        (number, StepEntry(attempt, ranks=1, done_s=at_s))
        for number, at_s in enumerate(done_s, first)
    ]


def every(step_s: float, count: int, begin_s: float = 1e9) -> Done:
    return [begin_s + step_s * number for number in range(count)]


@pytest.mark.parametrize(
    ("step_s", "count"),
    [
        (1 / 5000, KEPT_STEPS),
        (1 / 500, KEPT_STEPS),
        (0.05, KEPT_STEPS),
        (1 / 9, 300),
        (1 / 9, 3),
        (0.5, 40),
        (1.0, 15),
        (7.0, 60),
        (60.0, 2),
        (60.0, 200),
        (1800.0, 5),
    ],
)
def test_a_run_that_steps_evenly_has_that_speed_whenever_it_is_asked(
    step_s: float, count: int
) -> None:
    """From 5,000 steps a second to one in half an hour, at any moment between two steps."""
    done_s = every(step_s, count)
    for share in (0.0, 0.3, 0.99):
        rate = rates.steps_per_s(entries(done_s), done_s[-1] + share * step_s)
        assert rate == pytest.approx(1 / step_s, rel=1e-3)


@pytest.mark.parametrize("late_s", [0.1, 0.5, 1.0])
def test_news_that_comes_a_beat_late_costs_no_speed(late_s: float) -> None:
    """Steps travel in beats: a fast run is not slow because its newest steps are on their way."""
    done_s = every(0.001, KEPT_STEPS)
    assert rates.steps_per_s(entries(done_s), done_s[-1] + late_s) == pytest.approx(1000.0)


@pytest.mark.parametrize("step_s", [1 / 5000, 1 / 9, 0.5, 7.0, 60.0])
def test_a_run_that_stops_falls_to_nothing_without_a_jump(step_s: float) -> None:
    """No sooner than two steps could have taken, never up again, and 0 within five steps and a
    few seconds."""
    done_s = every(step_s, 100)
    gone_s = [number * max(step_s, 0.1) / 10 for number in range(2000)]
    speeds = [rates.steps_per_s(entries(done_s), done_s[-1] + by_s) or 0.0 for by_s in gone_s]
    assert speeds == sorted(speeds, reverse=True)
    steps_down = [before - after for before, after in pairwise(speeds)]
    assert max(steps_down) <= 0.06 * speeds[0]
    for by_s, speed in zip(gone_s, speeds, strict=True):
        if by_s <= 2 * step_s:
            assert speed == pytest.approx(1 / step_s, rel=1e-3)
        if by_s >= max(10.0, 5 * step_s) + 1.0:
            assert speed == 0.0


def test_all_steps_of_the_window_count() -> None:
    """A run that was slow until a while ago, or just now, is as fast as it was lately."""
    slow_then_fast = every(2.0, 10, 0.0) + every(0.1, 101, 20.0)
    assert rates.steps_per_s(entries(slow_then_fast), 30.0) == pytest.approx(10.0)
    half = every(0.1, 51, 0.0) + every(0.5, 10, 5.5)
    assert rates.steps_per_s(entries(half), 10.0) == pytest.approx(6.0, rel=0.01)


@pytest.mark.parametrize(
    ("done_s", "rate"),
    [
        (every(1 / 9, 400), 9.0),
        (every(60.0, 5), 1 / 60),
        (every(0.0002, KEPT_STEPS), 5000.0),
        ([1e9, 1e9 + 4.0], 0.25),
        ([1e9], None),
        ([], None),
    ],
)
def test_a_run_that_has_ended_keeps_the_speed_of_its_last_steps(
    done_s: Done, rate: float | None
) -> None:
    """Without a now there is no age: the mean over the last steps."""
    found = rates.steps_per_s(entries(done_s), None)
    assert found == (None if rate is None else pytest.approx(rate, rel=1e-3))


@pytest.mark.parametrize(
    ("steps", "rate"),
    [
        # The pause in which ranks were restarted is no step.
        (entries(every(0.1, 20, 0.0)) + entries(every(0.1, 10, 100.0), 1, 21), 10.0),
        # One step of a new attempt: no speed is known.
        (entries(every(0.1, 20, 0.0)) + entries([100.0], 1, 21), None),
        # Clocks that cannot be told apart: no speed is known, and nothing is divided by.
        (entries([5.0, 5.0, 5.0]), None),
        # Times not known.
        (entries([-float("inf"), 5.0]), None),
        # Out of order by a hair, as two ranks' clocks may make it.
        (entries([0.0, 1.0, 3.001, 3.0, 4.0]), 1.0),
    ],
)
def test_odd_histories_have_the_speed_of_what_is_sound(
    steps: list[tuple[int, StepEntry]], rate: float | None
) -> None:
    """Restarts, equal times and times out of order."""
    last_s = max(entry.done_s for _, entry in steps)
    found = rates.steps_per_s(steps, last_s)
    assert found == (None if rate is None else pytest.approx(rate, rel=1e-2))


def test_no_time_goes_by_in_a_pause() -> None:
    """A run has after it the speed that it had before, however long it stood, and falls to 0 when
    it does not go on behind it."""
    done_s = every(0.5, 20, 0.0) + [at_s + 3600.0 for at_s in every(0.5, 4, 10.0)]
    pauses = [(done_s[19] + 0.1, done_s[19] + 3600.1)]
    for steps, now_s in ((done_s, done_s[-1]), (done_s[:20], done_s[19] + 3600.2)):
        assert rates.steps_per_s(entries(steps), now_s, pauses) == pytest.approx(2.0)
    assert rates.steps_per_s(entries(done_s[:20]), done_s[19] + 3700.0, pauses) == 0.0


def test_a_run_shows_its_real_speed_from_its_first_seconds_to_long_after_its_end() -> None:
    """9 steps a second are 9 while it runs, less and less when it hangs, and 9 once it is over."""
    world = World(2)
    for _ in range(200):
        world.step(step_s=1 / 9)
    assert world.overview().steps_per_s == pytest.approx(9.0)
    assert world.overview().tokens_per_s == pytest.approx(1800.0)
    world.advance(3.0)
    assert 0.0 < (world.overview().steps_per_s or 0.0) < 9.0
    world.advance(9.0)
    assert world.overview().steps_per_s == 0.0
    for rank in (0, 1):
        world.kill(rank, 15)
    found = set()
    for _ in range(5):
        found.add(world.overview().steps_per_s)
        world.advance(10.0)
    world.run_end(143)
    found.add(world.overview().steps_per_s)
    assert len(found) == 1
    assert found.pop() == pytest.approx(9.0)


@pytest.mark.parametrize("steps", [6, 12, 40])
@pytest.mark.parametrize("stood_s", [10.0, 21.0, 600.0])
def test_the_one_step_in_which_a_rank_was_stopped_is_not_in_the_means(
    steps: int, stood_s: float
) -> None:
    """Phases are those of a usual step, at once when it goes on."""
    world = World(ranks=2)
    for _ in range(steps):
        world.step(step_s=0.4)
    usual = world.overview().phase_s
    world.step(step_s=stood_s)
    world.step(step_s=0.4)
    after = world.overview().phase_s
    assert after == pytest.approx(usual)
