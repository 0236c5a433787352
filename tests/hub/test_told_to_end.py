"""A run that somebody asked to end: what was wrong then, and what it goes on from."""

import msgspec
import pytest

from rankscope.hub.state.saves import Outcome
from rankscope.protocol.messages import Stage
from rankscope.protocol.pasting import named
from rankscope.protocol.shapes import Finding
from rankscope.tui.text.output import untoned
from rankscope.tui.text.status import status_text
from support.control import controlled
from support.numericworld import NumericWorld

WEIGHT = "blocks.2.mlp.up.weight"
HOW = ["Ctrl-C", "SIGTERM"]


def trained(saved: int | None = None, notfinite: str = "") -> NumericWorld:
    play = NumericWorld(2).clean(10)
    if saved is not None:
        outcome = Outcome(saved, 1, True, play.now_s, "/ck", "", -1, "", 1)
        play.state.saves.last = msgspec.structs.replace(outcome, notfinite=notfinite)
    return play


def spoil(play: NumericWorld, stage: Stage = Stage.GRADIENT) -> NumericWorld:
    """Rank 1 has the first NaN, in step 11; all have it in their parameters from then on."""
    play.sees(1, stage, WEIGHT, microbatch=1).sees([0, 1], Stage.UPDATED, WEIGHT).done()
    for _ in range(3):
        play.sees([0, 1], Stage.PARAMETER, WEIGHT).done()
    return play


def asked(play: NumericWorld, how: str) -> NumericWorld:
    """Whoever had enough of it ended it."""
    for rank in play.ranks:
        if how == "Ctrl-C":
            play.raises(rank, "KeyboardInterrupt").exits(rank, 130)
        else:
            play.kill(rank, signal=15)
    play.run_end(1, asked=2 if how == "Ctrl-C" else 15)
    play.advance(5.0)
    return play


def verdict(play: NumericWorld) -> Finding:
    found = play.status().verdict
    assert found is not None
    assert found == play.overview().verdict
    return found


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        (Stage.INPUT, "nonfinite-input"),
        (Stage.FORWARD, "nonfinite-forward"),
        (Stage.LOSS, "nonfinite-loss"),
        (Stage.GRADIENT, "nonfinite-gradient"),
    ],
)
def test_of_a_spoilt_run_that_was_ended_both_are_said(stage: Stage, kind: str, how: str) -> None:
    """It did not end by its NaN: somebody ended it; and that is not all there is to say."""
    play = spoil(trained(), stage)
    before = verdict(play).headline
    asked(play, how)
    name = "SIGINT" if how == "Ctrl-C" else "SIGTERM"
    found = verdict(play)
    assert (found.kind, found.ranks, found.step) == (kind, [1], 11)
    assert found.headline == f"run was ended by {name} after step 14; before that: {before}"
    told = " ".join(" ".join(untoned(each) for each in status_text(
        play.status(), play.overview(), 200)).split())  # fmt: skip
    assert f"FAILED {found.headline}" in told


@pytest.mark.parametrize("how", HOW)
def test_a_run_that_was_well_when_it_was_ended_is_only_ended(how: str) -> None:
    """Nothing stands behind it."""
    found = verdict(asked(trained(), how))
    assert found.kind == "run-interrupted"
    assert "before that" not in found.headline


def test_a_run_that_nobody_ended_says_nothing_of_an_end() -> None:
    """While it goes on, and where a rank died of itself."""
    play = spoil(trained())
    assert "before that" not in verdict(play).headline
    play.kill(1, signal=11)
    play.advance(5.0)
    assert not any("before that" in finding.headline for finding in play.findings())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("saved", "notfinite", "spoilt", "told"),
    [
        (8, "", False, "the newest checkpoint to go on from is of step 8: rankscope checkpoints"),
        (8, "", True, "the newest checkpoint to go on from is of step 8: rankscope checkpoints"),
        (10, "it holds NaN: w", False, "its newest checkpoint, of step 10, holds numbers that"),
        (13, "", True, "its newest checkpoint, of step 13, may hold numbers that are not finite"),
        (None, "", False, "nothing was saved, so it would begin anew"),
    ],
)
def test_what_it_goes_on_from_is_said(
    saved: int | None, notfinite: str, spoilt: bool, told: str, how: str
) -> None:
    """The newest checkpoint that is finite, and older than a NaN; or that there is none."""
    play = trained(saved, notfinite)
    for rank in play.ranks:
        controlled(play, rank, saver=True)
    if spoilt:
        spoil(play)
    asked(play, how)
    (next_,) = [one.next for one in play.findings() if one.kind == "run-interrupted"]
    if spoilt:  # where one looks first
        assert any(told in line for line in verdict(play).evidence)
    assert next_.startswith(
        "it was interrupted with Ctrl-C" if how == "Ctrl-C" else "whoever started it"
    )
    assert told in next_
    if "rankscope" in told:
        assert "rankscope checkpoints 20261130" in named(next_, "20261130")


def test_of_a_run_that_saves_by_itself_nothing_is_claimed() -> None:
    """Its own checkpoints are not known of here."""
    assert asked(trained(), "SIGTERM").finding("run-interrupted").next.endswith("to go on")
