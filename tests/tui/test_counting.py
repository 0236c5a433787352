"""One number of a step, wherever a rank is shown: that which the verdict has."""

from dataclasses import replace

import msgspec
import pytest

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.rank import RankScreen
from rankscope.tui.dashboard.screens.ranks import RanksScreen
from rankscope.tui.text.ranks import ranks_text
from rankscope.tui.words import numbers
from rankscope.tui.words.counting import step_words
from support import scenes
from support.scenes import row
from support.world import World


def stopped() -> World:
    world = World(ranks=2)
    for _ in range(11):
        world.step()
    return world.stop(1).advance(3.0)


def killed() -> World:
    world = World(ranks=2)
    for _ in range(11):
        world.step()
    return world.kill(1).advance(2.0)


@pytest.mark.parametrize("make", [stopped, killed])
def test_table_page_and_verdict_agree_on_the_step(make: object) -> None:
    """As do the text twins; the step is one that is in work, not the last that was done."""
    status = make().status()  # type: ignore[operator]
    finding = next(each for each in status.findings if each.ranks == [1])
    assert finding.step == 12
    assert f"step {finding.step}" in finding.headline
    shown = Picture(replace(scenes.healthy_2(), status=status, overview=None))
    table = [text_of(each) for each in RanksScreen().layout(shown, Room(120, 30, 0.0)).lines(30)]
    head = next(each for each in table if " in step " in each)
    line = next(each for each in table if each.lstrip(" ▸").startswith("1 "))
    end = head.index("in step") + len("in step")
    assert line[:end].split()[-1] == "12"
    page = [text_of(each) for each in RankScreen(1).layout(shown, Room(120, 30, 0.0)).lines(30)]
    assert any(each.split()[:2] == ["step", "12"] or "step         12" in each for each in page)
    assert "12" in ranks_text(status, 120)[-1].split()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "12481 in work"),
        ({"phase": "starting", "step": 0}, "0 done"),
        ({"phase": "ended", "process": "ended", "ended": "exit 0"}, "12480 done"),
        ({"phase": "ended", "process": "ended", "ended": "SIGKILL"}, "12481, where it ended"),
    ],
)
def test_a_rank_page_says_which_step_it_means(changes: dict[str, object], told: str) -> None:
    """In work, done, or the one in which the rank ended."""
    one = msgspec.structs.replace(row(0, "node-a"), **changes)
    assert (
        step_words(one)
        .replace(numbers.count(12480), "12480")
        .replace(numbers.count(12481), "12481")
        == told
    )
