"""A verdict on numbers waits for its evidence, stands, says whether it lasts, and closes."""

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage
from support.numericworld import NumericWorld
from support.world import SimRank

WEIGHT = "blocks.1.mlp.up.weight"


def test_nothing_is_said_before_every_rank_has_told_of_the_step() -> None:
    """Another rank may have the explanation; then one verdict comes, and it stands."""
    play = NumericWorld(2, "fsdp2").clean(5)
    play.sees(0, Stage.LOSS, microbatch=1).sees(0, Stage.FORWARD, "up", microbatch=1)
    assert play.kinds() == []
    play.done(ranks=[0])
    assert play.kinds() == []
    play.sees(1, Stage.PARAMETER, WEIGHT, step=6)
    play.done(ranks=[1], step_s=0.01)
    assert play.kinds() == ["nonfinite-parameter"]
    assert play.ever() == {"nonfinite-parameter"}


def test_a_rank_that_was_not_heard_of_yet_is_waited_for() -> None:
    """Ranks find their hub one after another, and the last may be the one to blame."""
    play = NumericWorld(2, attached=[0])
    play.hello(0, world_size=2)
    play.clean(5)
    play.sees(0, Stage.REDUCED, WEIGHT, looked=(Stage.GRADIENT,)).done()
    assert play.kinds() == []
    play.ranks[1] = SimRank(1, play.ranks[0].host, 1)
    play.hello(1)
    play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1, step=6)
    for _ in range(6):
        play.done(ranks=[1], step_s=0.01)
    assert play.finding("nonfinite-gradient").ranks == [1]
    assert play.ever() == {"nonfinite-gradient"}


def test_a_rank_that_never_comes_is_waited_for_shortly() -> None:
    """A loop that attaches on some of its ranks only has its verdicts, too."""
    play = NumericWorld(2, attached=[0])
    play.hello(0, world_size=2)
    play.clean(5).sees(0, Stage.LOSS, microbatch=1).done().advance(4.0, moving=True)
    assert play.ever() == {"nonfinite-loss"}


def test_a_bad_batch_is_told_at_once() -> None:
    """Nothing comes before an input."""
    play = NumericWorld(2).clean(5).sees(0, Stage.INPUT, "args[0]", microbatch=1)
    assert play.kinds() == ["nonfinite-input"]


def test_a_step_that_never_ends_is_judged_by_what_was_told() -> None:
    """A rank that hangs after a NaN does not hide it."""
    play = NumericWorld(2).clean(5).sees(1, Stage.GRADIENT, WEIGHT, microbatch=1)
    play.done(ranks=[0])
    play.advance(2.0)
    assert play.ever() == set()
    play.advance(1.5)
    assert "nonfinite-gradient" in play.ever()


def test_values_that_come_off_a_device_late_are_waited_for() -> None:
    """On a GPU a step's signs may come two steps after it."""
    play = NumericWorld(2)
    for rank in play.ranks:
        play.beat(rank, late=(m.LateValues(0, local_norm=1.0),))
    play.clean(5, norms={0: None, 1: None})
    play.sees([0, 1], Stage.REDUCED, WEIGHT, step=5)
    play.done({0: None, 1: None})
    play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1, step=5)
    play.clean(4, norms={0: None, 1: None})
    assert play.finding("nonfinite-gradient").ranks == [1]
    assert play.ever() == {"nonfinite-gradient"}


def test_a_single_bad_step_is_said_to_be_one_and_closes() -> None:
    """It stays in the log, with what was known then."""
    play = NumericWorld(2).clean(5).sees(1, Stage.LOSS, microbatch=1).done()
    assert not any("that one step" in line for line in play.findings()[0].evidence)
    play.clean(4)
    assert any("it was that one step" in line for line in play.findings()[0].evidence)
    play.clean(90)
    assert play.kinds() == []
    entries = [e for e in play.core.know.incidents.shown if e.finding.kind == "nonfinite-loss"]
    assert [entry.event for entry in entries] == ["opened", "closed"]


def test_fast_steps_do_not_take_it_off_the_screen_before_it_is_read() -> None:
    """Twenty steps may be half a second."""
    play = NumericWorld(2).clean(5).sees(1, Stage.LOSS, microbatch=1).done()
    play.clean(60, step_s=0.01)
    assert play.kinds() == ["nonfinite-loss"]


def test_what_goes_on_is_said_to_go_on() -> None:
    """And the origin stays the first step."""
    play = NumericWorld(2).clean(5)
    for _ in range(6):
        play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1)
        play.sees([0, 1], Stage.PARAMETER, WEIGHT)
        play.done()
    finding = play.findings()[0]
    assert finding.step == 6
    assert any("every step since shows it: 6 in a row" in line for line in finding.evidence)


def test_a_gradient_that_is_never_cleared_is_told_from_one_that_is_made_anew() -> None:
    """The same gradient again and again, with finite losses and parameters."""
    play = NumericWorld(2).clean(5)
    for _ in range(6):
        play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1, looked=(Stage.INPUT, Stage.LOSS))
        play.sees([0, 1], Stage.REDUCED, WEIGHT)
        play.done({1: float("nan")}, updated={0: False, 1: False})
    finding = play.finding("nonfinite-gradient")
    assert (finding.ranks, finding.step) == ([1], 6)
    assert any("never cleared" in line for line in finding.evidence)


def test_a_second_episode_is_a_finding_of_its_own() -> None:
    """Once the first is over, the next NaN is judged for itself."""
    play = NumericWorld(2).clean(5).sees(1, Stage.LOSS, microbatch=1).done().clean(90)
    play.sees(0, Stage.GRADIENT, WEIGHT, microbatch=1).done()
    assert play.finding("nonfinite-gradient").ranks == [0]


def test_a_scaler_that_backs_off_is_ordinary() -> None:
    """Overflow of scaled gradients now and then is what a gradient scaler is for."""
    play = NumericWorld(2)
    for _ in range(4):
        play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1, value="inf", note="scaler: 65536")
        play.sees([0, 1], Stage.REDUCED, WEIGHT, value="inf", note="scaler: 65536")
        play.done({1: float("inf")}, updated={0: False, 1: False}, scale=65536.0)
        play.clean(5, scale=32768.0)
    assert play.ever() == set()


def test_a_scaler_that_never_stops_backing_off_is_not() -> None:
    """Twenty in a row: the scale is below 1, and no update is made any more."""
    play = NumericWorld(2).clean(5, scale=65536.0)
    for _ in range(25):
        play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1, value="inf")
        play.done({1: float("inf")}, updated={0: False, 1: False}, scale=2.0)
    finding = play.finding("nonfinite-gradient")
    assert finding.ranks == [1]
    assert any("has skipped 25 updates in a row" in line for line in finding.evidence)


@pytest.mark.parametrize("before", [True, False])
def test_a_scaler_hides_no_nan_that_is_not_its_own(before: bool) -> None:
    """A module's NaN is told whatever the scaled gradients said before it, or in the same step."""
    play = NumericWorld(2).clean(5, scale=65536.0)
    if before:
        play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1, value="inf")
        play.done(updated={0: False, 1: False}, scale=32768.0)
    play.sees(0, Stage.GRADIENT, WEIGHT, microbatch=1)
    play.sees(0, Stage.FORWARD, "blocks.1", microbatch=1)
    play.done(scale=32768.0)
    finding = play.finding("nonfinite-forward")
    assert finding.step == (7 if before else 6)


def test_the_verdict_survives_a_restart_of_the_hub() -> None:
    """A state that was saved and read again says the same."""
    from rankscope.hub import snapshot
    from rankscope.hub.diagnose import diagnose

    play = NumericWorld(4).clean(8).sees(3, Stage.GRADIENT, WEIGHT, microbatch=1)
    play.sees(range(4), Stage.REDUCED, WEIGHT).done({3: float("nan")}).clean(3)
    raw = snapshot.dump(play.state)
    again = snapshot.load(raw)
    assert snapshot.dump(again) == raw
    assert diagnose(again, play.now_s) == diagnose(play.state, play.now_s)


def test_what_an_older_version_saved_otherwise_begins_empty() -> None:
    """The rest of the run is kept."""
    import msgspec

    from rankscope.hub import snapshot

    play = NumericWorld(2).clean(3)
    saved = msgspec.msgpack.decode(snapshot.dump(play.state))
    saved["numerics"] = {"columns": "of another form"}
    again = snapshot.load(msgspec.msgpack.encode(saved))
    assert again.ranks.step[:2].tolist() == [3, 3]
    assert again.numerics.columns.size == again.ranks.size
    del saved["numerics"]
    assert snapshot.load(msgspec.msgpack.encode(saved)).numerics.complete == 0
