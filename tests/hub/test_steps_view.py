"""The newest steps over time: what stands out, and who is late."""

import math

import msgspec
import numpy as np
import pytest

from rankscope.hub import snapshot
from rankscope.hub.core import Core
from rankscope.hub.incidents import Incidents
from rankscope.hub.oddsteps import odd_steps
from rankscope.hub.state import RunState
from rankscope.hub.state.lateness import STEPS, Lateness
from rankscope.hub.state.paces import Paces
from rankscope.hub.views.steps import steps as steps_view
from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from support.world import START_S, World


def calm(count: int = 24) -> list[float | None]:
    return [2.0 + 0.01 * math.sin(3.0 * at) for at in range(count)]


def odd(step_s: list[float | None], loss: list[float | None]) -> list[tuple[int, str]]:
    found = odd_steps(list(range(1, len(loss) + 1)), step_s, loss)
    return [(each.step, each.what) for each in found]


def test_calm_numbers_hold_nothing_odd() -> None:
    """Scatter is no anomaly, and neither is a loss that falls."""
    falling: list[float | None] = [3.0 - 0.05 * at for at in range(24)]
    assert odd(calm(), calm()) == []
    assert odd(calm(), falling) == []


@pytest.mark.parametrize(
    ("value", "what"),
    [(4.0, "loss jump"), (math.nan, "loss not finite"), (math.inf, "loss not finite")],
)
def test_a_loss_that_is_odd_is_named_at_its_step(value: float, what: str) -> None:
    """A jump beyond the scatter, and what is no number."""
    loss = calm()
    loss[20] = value
    assert odd(calm(), loss) == [(21, what)]


def test_of_losses_that_are_not_finite_the_first_is_named() -> None:
    """However many follow it, it does not drown in them; a step without a loss ends no row."""
    loss = calm(100)
    loss[20:] = [math.nan] * 80
    loss[30] = None
    assert odd(calm(100), loss) == [(21, "loss not finite")]
    loss[60:70] = [2.0] * 10
    assert odd(calm(100), loss) == [(21, "loss not finite"), (71, "loss not finite")]


def test_a_slow_step_is_named_with_what_is_usual() -> None:
    """Half as long again as those before it, and beyond their scatter."""
    times = calm()
    times[20] = 3.5
    found = odd_steps(list(range(1, 25)), times, [None] * 24)
    assert [(each.step, each.what, each.value) for each in found] == [(21, "slow step", 3.5)]
    assert found[0].usual == pytest.approx(2.0, abs=0.02)


def test_the_first_steps_are_never_odd() -> None:
    """Compilation and cold caches make them slow: there is nothing yet to compare with."""
    assert odd([9.0, *calm(20)], [9.0, *calm(20)]) == []


def straggling(steps: int = 24, ranks: int = 3, slow_from: int = 10) -> World:
    """The last rank takes 0.1 s more in its loader after a step, and the others wait for it."""
    world = World(ranks=ranks)
    for step in range(1, steps + 1):
        world.now_s += 0.2
        for rank in range(ranks):
            late = rank == ranks - 1 and step > slow_from
            sim = world.ranks[rank]
            sim.step, sim.activity, sim.phase = step, sim.activity + 4, m.Phase.BACKWARD
            data_s, waits_s = (0.12, 0.0) if late else (0.02, 0.1 if step > slow_from else 0.0)
            record = m.StepRecord(
                step=step,
                t_s=world.now_s + sim.clock_s,
                step_s=0.2,
                data_s=data_s,
                forward_s=0.03,
                backward_s=0.04 + waits_s,
                optimizer_s=0.01,
                other_s=0.0,
                microbatches=1,
                loss=2.0,
                waited_s=(0.0, 0.0, waits_s, 0.0, 0.0),
            )
            world.beat(rank, steps=(record,))
        world.tick()
    world.tick()
    return world


def test_a_late_rank_shows_when_and_in_which_phase_it_is_late() -> None:
    """The heat of its steps, its phase and its factor; the others only wait."""
    view = straggling().view("steps")
    assert isinstance(view, shapes.StepsView)
    assert view.steps == list(range(1, 25))
    late = view.ranks[2]
    assert late.phase == "data"
    assert late.factor == pytest.approx(6.0, rel=0.01)
    assert late.late_s == pytest.approx(0.1, rel=0.01)
    heat = dict(zip(view.late_steps, late.late_percent, strict=True))
    assert (heat[8], heat[20]) == (0, 50)
    for row in view.ranks[:2]:
        assert (row.phase, row.factor) == ("", None)
        assert row.waited_s == pytest.approx(0.1, rel=0.01)
        assert max(value or 0 for value in row.late_percent) == 0
    assert [finding.kind for finding in view.findings] == ["straggler"]
    assert view.waited_s[-1] == pytest.approx(0.2 / 3, rel=0.01)
    assert view.phase_s["data"][-1] == pytest.approx(0.16 / 3, rel=0.01)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_nobody_is_late_or_on_time_over_a_few_steps(ranks: int) -> None:
    """The first ones warm up, and single ones scatter: what is not judged is said not to be."""
    for steps in range(1, 11):
        rows = straggling(steps, ranks, slow_from=0).view("steps").ranks
        assert [(row.phase, row.factor, row.late_s) for row in rows] == [("", None, None)] * ranks
    rows = straggling(11, ranks, slow_from=0).view("steps").ranks
    assert [row.phase for row in rows] == [""] * (ranks - 1) + ["data"]


def test_who_was_late_is_known_of_a_run_that_has_ended() -> None:
    """As it was known of the live one: from what its hub left behind."""
    state = straggling().state

    def rows(of: RunState) -> list[shapes.StepsRow]:
        know = Core(of, Incidents(), now_s=START_S).know
        return steps_view(know, m.ViewRequest(1, "steps"), START_S).ranks

    again = snapshot.load(snapshot.dump(state))
    assert again.paces.since == state.paces.since != {}
    live, ended = rows(state), rows(again)
    assert [row.phase for row in ended] == [row.phase for row in live] == ["", "", "data"]
    assert ended[2].factor == pytest.approx(live[2].factor, rel=0.01)
    for was, row in zip(live, ended, strict=True):
        for name in ("work_s", "waited_s", "late_s"):
            assert getattr(row, name) == pytest.approx(getattr(was, name), rel=0.01, abs=1e-4)


def test_a_ranks_own_steps_are_told_when_asked_for() -> None:
    """Its phases without the waiting in them."""
    view = straggling().view("steps", rank=0)
    assert view.rank_steps[-1] == 24
    assert view.rank_phase_s["backward"][-1] == pytest.approx(0.04, rel=0.01)
    assert view.rank_waited_s[-1] == pytest.approx(0.1, rel=0.01)


def test_no_such_rank_is_said_in_words() -> None:
    """The hub answers, and says how many there are."""
    assert "this run has 3" in straggling(3).ask("steps", rank=7).error


def test_one_rank_alone_is_late_for_nobody() -> None:
    """There is nobody to compare it with; the run's own steps are there."""
    view = straggling(12, ranks=1).view("steps")
    assert view.late_steps == []
    assert view.ranks[0].late_percent == []
    assert len(view.steps) == 12


def test_before_the_first_step_the_view_is_empty() -> None:
    """And can be asked for all the same."""
    view = World(ranks=2).view("steps")
    assert (view.steps, view.late_steps, view.anomalies) == ([], [], [])
    assert [row.work_s for row in view.ranks] == [None, None]


def test_the_rings_keep_the_newest_steps_only() -> None:
    """However long a run is, what is kept stays as large as it is."""
    paces, late = Paces(), Lateness()
    paces.reserve(2)
    late.reserve(2)
    for step in range(1, 3 * STEPS):
        for rank in (0, 1):
            record = m.StepRecord(step, 0.0, 1.0, 0.1 * (1 + rank), 0.1, 0.1, 0.1, 0.0, 1)
            paces.record(record, rank)
        paces.compare(np.ones(2, dtype=bool), step)
        late.take(paces)
    steps, columns = late.columns(1000)
    assert steps == list(range(2 * STEPS, 3 * STEPS))
    assert late.late_s.shape == (2, STEPS)
    assert late.late_s[1, columns].tolist() == pytest.approx([0.1] * STEPS)


def test_it_is_kept_over_a_restart_of_the_hub() -> None:
    """The heat of a run's last steps can still be seen when it has ended."""
    state = straggling().state
    again = snapshot.load(snapshot.dump(state))
    steps, columns = again.lateness.columns(96)
    assert (steps, columns.tolist()) == tuple(
        each if isinstance(each, list) else each.tolist() for each in state.lateness.columns(96)
    )
    assert again.lateness.late_s[2, columns].tolist() == pytest.approx(
        state.lateness.late_s[2, columns].tolist(), rel=0.01
    )


def test_rings_that_do_not_fit_are_left_out_of_what_is_loaded() -> None:
    """A snapshot of another version, or a damaged one, costs the picture only."""
    paces = straggling().state.paces
    whole = paces.dump()
    for name in ("told", "work_s", "usual_s", "step_s"):
        with pytest.raises(ValueError, match="rings"):
            paces.load(whole | {name: b"\0\0"})
    with pytest.raises(ValueError, match="rings"):
        paces.load(whole | {"since": [[0, 7, 1, 0.0]]})
    paces.load(whole)
    late = Lateness()
    late.reserve(2)
    saved = late.dump()
    for damage in ({"late_s": b"\0\0"}, {"step": [1]}, {"step_s": b""}):
        with pytest.raises(ValueError, match="rings"):
            late.load(saved | damage)
    late.load(saved)


def test_a_new_attempt_begins_with_nothing() -> None:
    """What was late in the attempt before is past."""
    world = straggling()
    world.new_attempt()
    view = world.view("steps")
    assert view.late_steps == []
    assert all(row.late_percent == [] for row in view.ranks)


def test_a_large_world_shows_those_that_are_most_behind() -> None:
    """The rest is counted."""
    world = straggling(14, ranks=300)
    view = world.view("steps")
    assert (len(view.ranks), view.left_out) == (256, 44)
    assert view.ranks[-1].rank == 299
    assert len(msgspec.msgpack.encode(view)) < 64_000
