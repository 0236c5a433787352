"""A run's folder that is removed while somebody looks: words, and what was known stays."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.protocol import rundir
from rankscope.protocol.exits import UserError
from rankscope.tui import reach
from rankscope.tui.dashboard.action import ScreenName
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.runwatch import RunWatch
from rankscope.tui.dashboard.screens.base import Room
from support.scenes import SCENES

GONE = "the run's folder is gone"


def test_who_asks_for_it_is_told_that_it_is_gone(tmp_path: Path) -> None:
    """Not that there never was such a run: it was there a moment ago."""
    run = "20261129-163000-a3f9ab"
    directory = rundir.create(tmp_path / "runs", run, command=["x"], name="", now_s=0.0)
    shutil.rmtree(directory.path)
    with pytest.raises(UserError, match=GONE):
        reach.connect(directory)


@pytest.mark.parametrize("scene", ["failed", "finished"])
@pytest.mark.parametrize(
    "screen", ["collectives", "stacks", "numerics", "memory", "steps", "checkpoints", "incidents"]
)
def test_a_screen_that_cannot_be_asked_for_says_why(screen: ScreenName, scene: str) -> None:
    """Of an ended run too, whose head says nothing of its hub; the verdict stays."""
    snapshot = replace(SCENES[scene](), link="away", error=f"{GONE} (deleted)", view=None)
    navigation = Navigation(RunWatch())
    navigation.go(screen)
    lines = navigation.screen.layout(Picture(snapshot), Room(80, 24, 0.0)).lines(24)
    text = "\n".join(map(text_of, lines))
    assert f"{screen} cannot be asked for: {GONE}" in text
    assert {"failed": "rank 2 died", "finished": "at step 12 480"}[scene] in text
