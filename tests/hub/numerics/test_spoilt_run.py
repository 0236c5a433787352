"""What is left to do with a run whose numbers are spoilt, and how its views speak of it."""

import math

import pytest

from rankscope.hub.diagnose.nonfinite.origin import Origin
from rankscope.hub.diagnose.nonfinite.sentences import next_step
from rankscope.hub.state.saves import Outcome
from rankscope.protocol.messages import Sign, Stage
from rankscope.protocol.pasting import named
from rankscope.protocol.shapes import Finding
from rankscope.tui.text.output import untoned
from rankscope.tui.text.status import status_text
from rankscope.tui.text.steps import steps_text
from rankscope.tui.words.advice import advice_lines
from rankscope.tui.words.numerics import replicas_text
from support.numericworld import NumericWorld

WEIGHT = "blocks.2.mlp.up.weight"


def spoilt(saved: int | None = None, *, updated: bool = True) -> NumericWorld:
    """A NaN in one rank's gradient in step 11; the losses show it from step 12 on."""
    play = NumericWorld(2)
    play.clean(10)
    if saved is not None:
        play.state.saves.last = Outcome(saved, 1, True, play.now_s, "/ck", "", -1, "", 1)
    play.sees(1, Stage.GRADIENT, WEIGHT, microbatch=1).sees([0, 1], Stage.REDUCED, WEIGHT)
    if updated:
        play.sees([0, 1], Stage.UPDATED, WEIGHT)
    play.done()
    for _ in range(3):
        if updated:
            play.sees([0, 1], Stage.PARAMETER, WEIGHT)
        play.done(loss=math.nan if updated else 2.0)
    return play


def verdict(play: NumericWorld) -> Finding:
    (finding,) = play.findings()
    return finding


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (None, "there is no checkpoint to go on from"),
        (8, "go on from checkpoint 8"),
        (13, "checkpoint 13 may hold it, and this run has none of before step 11"),
    ],
)
def test_what_to_do_with_a_run_whose_parameters_are_spoilt_is_said(
    saved: int | None, words: str
) -> None:
    """To end it, by which command, and what to go on from; in the evidence and beside the next
    step."""
    play = spoilt(saved)
    line = f"what it trains since step 11 cannot be kept: rankscope stop; {words}"
    assert line in verdict(play).evidence
    text = [untoned(each) for each in status_text(play.status(), play.overview(), 80)]
    (at,) = [index for index, each in enumerate(text) if each.startswith("    end   ")]
    shown = " ".join(each.strip() for each in text[at : at + 4])
    assert "rankscope stop" in shown
    assert words in shown


@pytest.mark.parametrize(
    ("notfinite", "older", "words"),
    [
        ("it holds NaN: w", [8], "go on from checkpoint 8"),
        ("", [5, 8, 12], "go on from checkpoint 8"),
        ("it holds NaN: w", [], "checkpoint 13 holds it, and this run has none of before step 11"),
    ],
)
def test_what_to_go_on_from_is_the_newest_of_before(
    notfinite: str, older: list[int], words: str
) -> None:
    """Not the newest there is, which may hold it, or is known to."""
    play = spoilt(13)
    saves = play.state.saves
    assert saves.last is not None
    saves.last.notfinite = notfinite
    saves.outcomes += [Outcome(step, 0, True, play.now_s, "/ck", "", -1, "", 1) for step in older]
    assert any(text.endswith(words) for text in verdict(play).evidence), verdict(play).evidence


@pytest.mark.parametrize("over", [True, False])
def test_a_run_that_is_over_or_not_spoilt_is_not_to_be_ended(over: bool) -> None:
    """A guard has kept the update out, or there is nothing to end."""
    play = spoilt(updated=over)
    if over:
        for rank in (0, 1):
            play.finish(rank)
        play.run_end(0)
    assert "cannot be kept" not in " ".join(verdict(play).evidence)
    text = "\n".join(status_text(play.status(), play.overview(), 80))
    assert "    end   " not in text


def test_the_steps_say_where_a_loss_that_is_not_finite_began() -> None:
    """The loss shows it a step after the gradient."""
    text = "\n".join(map(untoned, steps_text(spoilt().view("steps"), None, 80)))
    assert "✗ step 12: loss nan, from what began in step 11: see numerics" in text


def test_replicas_that_are_alike_in_their_nan_are_not_called_equal() -> None:
    """They are spoilt alike."""
    play = spoilt()
    view = play.view("numerics")
    view.replicas_checked_step, view.replicas_equal = 13, True
    assert replicas_text(view) == "replicas: alike up to step 13, but not finite since step 11"
    view.replicas_checked_step = 10
    assert replicas_text(view) == "replicas: equal up to step 10"


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize(
    "kind",
    [
        *("nonfinite-input", "nonfinite-forward", "nonfinite-loss", "nonfinite-gradient"),
        *("nonfinite-cast", "nonfinite-reduction", "nonfinite-parameter", "nonfinite-optimizer"),
    ],
)
def test_the_next_step_is_whole_on_the_first_screen_of_a_small_terminal(
    kind: str, stage: Stage
) -> None:
    """Two lines of 70 cells, with a name as models have them, and the run's in a command."""
    sign = Sign(stage, 12, 1, WEIGHT, "nan", 1, 0, "")
    step = next_step(Origin(kind, stage, [3], {3: sign}), 12)
    lines = advice_lines(named(step, "20261130-155601"), 70)
    assert len(lines) <= 2, lines
