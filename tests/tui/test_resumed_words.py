"""How a resumed run is shown: never as one that has no checkpoint to go back to."""

import dataclasses
from typing import Any

import msgspec
import pytest

from rankscope.protocol.checkpoints import Verified
from rankscope.protocol.shapes import Checkpoint, CheckpointsView, Overview, Resumed, Status
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.bottom import state_line
from rankscope.tui.dashboard.render.checkpoints import checkpoint_lines
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.text.checkpoint import verified_text
from rankscope.tui.text.checkpoints import checkpoints_text
from rankscope.tui.text.saving import outcome_line
from rankscope.tui.text.status import status_text
from rankscope.tui.words.checkpoints import outcome_mark, outcome_text
from rankscope.tui.words.commands import consequences
from rankscope.tui.words.ending import what_comes_of_it
from support.scenes import SCENES, views

PATH = "/c/step-00000012"
SAVED = Checkpoint(12, PATH, True, resumed=True)
LATER = Checkpoint(20, "/c/step-00000020", True)
KNOWN, UNKNOWN = Resumed(12, PATH), Resumed(12, "")


def told(last: Checkpoint | None, resumed: Resumed) -> dict[str, str]:
    """By where it is said."""
    snapshot = SCENES["healthy-8"]()
    assert snapshot.status is not None
    assert snapshot.overview is not None
    changed: dict[str, Any] = {"last_checkpoint": last, "resumed": resumed}
    status: Status = msgspec.structs.replace(snapshot.status, **changed)
    overview: Overview = msgspec.structs.replace(snapshot.overview, **changed)
    view: CheckpointsView = msgspec.structs.replace(
        views.checkpoints_view(), last=last, resumed=resumed, outcomes=[]
    )
    picture = Picture(dataclasses.replace(snapshot, status=status, overview=overview))
    return {
        "status": "\n".join(status_text(status, overview)),
        "first screen": text_of(state_line(picture, 120)),
        "checkpoints": "\n".join(checkpoints_text(view)),
        "checkpoints screen": "\n".join(map(text_of, checkpoint_lines(view, picture, 120)[:4])),
        "stop": " ".join(consequences("stop", status)),
        "end of a hang": what_comes_of_it(status),
    }


@pytest.mark.parametrize(
    ("last", "resumed", "words"),
    [
        (SAVED, KNOWN, ["12"]),
        (None, UNKNOWN, ["12"]),
        (LATER, KNOWN, ["20"]),
        (LATER, UNKNOWN, ["20"]),
    ],
)
def test_everywhere_the_step_to_go_back_to_is_named(
    last: Checkpoint | None, resumed: Resumed, words: list[str]
) -> None:
    """And nowhere that there is none."""
    for where, text in told(last, resumed).items():
        assert "no checkpoint" not in text.lower(), where
        assert "none yet" not in text, where
        for word in words:
            assert word in text, (where, text)


@pytest.mark.parametrize("last", [SAVED, None, LATER])
def test_that_it_was_resumed_is_said(last: Checkpoint | None) -> None:
    """In status, on the first screen, and among the checkpoints with the path where it is known."""
    texts = told(last, KNOWN if last else UNKNOWN)
    for where in ("status", "first screen", "checkpoints", "checkpoints screen"):
        assert "resumed" in texts[where], (where, texts[where])
        assert "12" in texts[where], where
        assert PATH in texts[where] or "checkpoints" not in where or last is None, where


HELD = msgspec.structs.replace(LATER, notfinite="it holds NaN: model.w and 3 more", finite_step=14)


def test_everywhere_a_checkpoint_that_holds_nan_says_so() -> None:
    """And which one does not: never only that it is verified."""
    texts = told(HELD, KNOWN)
    for where in ("status", "first screen", "checkpoints", "checkpoints screen", "end of a hang"):
        words = " ".join(texts[where].split())
        assert "holds NaN; step 14 does not" in words, (where, words)


def test_among_saves_one_that_holds_nan_is_marked() -> None:
    """With the parameter, before the path, which may be cut."""
    one = msgspec.structs.replace(views.outcome(20, 1.0), notfinite=HELD.notfinite)
    assert outcome_mark(one).tone == "warn"
    assert "it holds NaN: model.w and 3 more" in outcome_text(one)
    assert "it holds NaN" in outcome_line(one)
    found = Verified("/c/s", "complete", 20, 2, 10, [], [], True, HELD.notfinite)
    assert any("--resume auto passes over it" in line for line in verified_text(found))
    found.notfinite = "it holds Inf: model.w"
    assert any("--resume auto prefers one" in line for line in verified_text(found))
