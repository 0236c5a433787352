"""What an operator must be able to read off every screen: the kind, who keeps no pace, what is cut,
and what a command will really do."""

from dataclasses import replace

import msgspec
import pytest

from rankscope.protocol.shapes import Finding, Incidents, StepsView
from rankscope.tui.dashboard.action import SCREENS
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.cut import cut
from rankscope.tui.dashboard.render.line import line, text_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.words.commands import NEEDS_ALL, consequences
from support.scenes import SCENES, numerics, pages, views
from support.scenes.hangs import SCENES as HANGS
from support.world import World

SIZES = ((80, 24), (120, 40), (200, 50))


def drawn(name: str, picture: Picture, width: int, height: int) -> list[str]:
    navigation = Navigation()
    if name == "rank":
        navigation.open(2)
    elif name != "overview":
        navigation.go(name)  # type: ignore[arg-type]
    room = Room(width, height, 0.0)
    return [text_of(each) for each in navigation.screen.layout(picture, room).lines(height)]


@pytest.mark.parametrize("scene", ["dead", "failed", "raised", "stopped"])
@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_screen_names_the_kind_of_the_verdict(
    name: str, scene: str, width: int, height: int
) -> None:
    """Under a head such as STALLED, too; in the lines above the rule, with its rank."""
    picture = Picture(SCENES[scene]())
    assert picture.verdict is not None
    lines = drawn(name, picture, width, height)
    end = next(at for at, text in enumerate(lines) if text.strip().startswith("──"))
    head = " ".join(" ".join(lines[:end]).lower().split())
    assert picture.verdict.kind in head
    assert f"rank {picture.verdict.ranks[0]}" in head


@pytest.mark.parametrize("scene", ["dead", "stopped", "failed"])
def test_the_steps_screen_calls_no_rank_on_time_that_does_not_move(scene: str) -> None:
    """The one to blame is on top, and says what it is."""
    base = SCENES[scene]()
    assert base.status is not None
    stuck = [rank for finding in base.status.findings for rank in finding.ranks]
    view = views.steps_view()
    rows = [msgspec.structs.replace(view.ranks[0], rank=row.rank) for row in base.status.ranks]
    picture = Picture(replace(base, view=msgspec.structs.replace(view, ranks=rows)))
    lines = drawn("steps", picture, 120, 40)
    for rank in stuck:
        shown = [text for text in lines if text.replace("▸", "").split()[:1] == [str(rank)]]
        assert shown, rank
        assert not any("on time" in text for text in shown)
    assert not any("on time" in text for text in lines if text.startswith(" ▸"))


def test_what_is_late_while_a_run_warms_up_is_left_out() -> None:
    """In its first steps every rank compiles and connects: who is late then means nothing."""
    world = World(ranks=2)
    for _ in range(3):
        world.step(0, step_s=0.2).step(1, step_s=0.9).tick()
    view = world.view("steps")
    assert isinstance(view, StepsView)
    assert view.late_steps == []
    assert all(not row.phase for row in view.ranks)
    for _ in range(9):
        world.step(0, step_s=0.2).step(1, step_s=0.9).tick()
    view = world.view("steps")
    assert isinstance(view, StepsView)
    assert view.late_steps == list(range(4, 13))[: len(view.late_steps)] != []
    assert [row.phase for row in view.ranks] == ["", "backward"]


def test_what_is_cut_says_how_much_is_left_out() -> None:
    """The lines that stay and the one that tells of the others have room together."""
    lines = [line(f"line {number}") for number in range(9)]
    assert cut(lines, 9, 80, "v shows them") == lines
    shown = [text_of(each) for each in cut(lines, 4, 80, "v shows them")]
    assert shown[:3] == ["line 0", "line 1", "line 2"]
    assert shown[3].strip() == "… 6 more lines: v shows them"


def test_the_line_of_the_users_code_is_on_the_screen_of_collectives() -> None:
    """At 80 columns, too: it is what is needed most."""
    view = HANGS["collectives-missing"]().view
    assert view is not None
    text = "\n".join(drawn("collectives", Picture(HANGS["collectives-missing"]()), 80, 24))
    assert "called at train.py:61 in train" in text


def test_a_parameter_list_that_is_cut_says_so() -> None:
    """With the command that shows all."""
    text = "\n".join(drawn("numerics", Picture(numerics.SCENES["nan"]()), 80, 24))
    assert "more parameters: rankscope numerics --rank 5" in text


@pytest.mark.parametrize("command", NEEDS_ALL)
def test_a_command_that_cannot_happen_is_not_promised(command: str) -> None:
    """A rank that is stopped, gone or stuck cannot reach the boundary: it is named, with what
    comes of it."""
    for scene, words in (("stopped", "stopped"), ("dead", "ended")):
        status = SCENES[scene]().status
        assert status is not None
        told = " ".join(consequences(command, status))
        culprits = [rank for finding in status.findings for rank in finding.ranks]
        assert words in told
        assert str(culprits[0]) in told
        assert "end their loop at the same step" not in told
        assert "wait at the same step" not in told
    healthy = SCENES["healthy-8"]().status
    assert "All 8 ranks" in " ".join(consequences(command, healthy))


def test_a_stuck_rank_is_named_where_a_command_waits_for_it() -> None:
    """Nothing is stopped or gone: the verdict says who does not reach the boundary."""
    status = SCENES["stalled"]().status
    assert status is not None
    blamed = Finding("missing-collective", "critical", [1], [0], None, 42.0, "x", [], "", {})
    stuck = msgspec.structs.replace(status, verdict=blamed, findings=[blamed])
    rows = [msgspec.structs.replace(row, process="alive", link="up") for row in stuck.ranks]
    told = " ".join(consequences("stop", msgspec.structs.replace(stuck, ranks=rows)))
    assert "rank 1 is stuck" in told
    assert "given up" in told


def test_the_incident_log_opens_at_what_the_verdict_is_about() -> None:
    """Not at the newest line, which may be a notice that is over."""
    base = pages.SCENES["incidents-many"]()
    assert isinstance(base.view, Incidents)
    notice = msgspec.structs.replace(
        base.view.incidents[0],
        id="stalled/0",
        event="opened",
        at_s=max(one.at_s for one in base.view.incidents) + 5.0,
        finding=Finding("stalled", "info", [], [], None, 0.0, "no rank moves", [], "", {}),
        command=None,
    )
    over = msgspec.structs.replace(notice, event="closed", at_s=notice.at_s + 1.0)
    view = msgspec.structs.replace(base.view, incidents=[*base.view.incidents, notice, over])
    lines = drawn("incidents", Picture(replace(base, view=view)), 120, 40)
    chosen = next(text for text in lines if text.startswith(" ▸"))
    assert "rank 2 died" in chosen


def test_what_a_command_would_wait_for_stands_in_the_list_of_commands() -> None:
    """Before one asks for it."""
    view = pages.SCENES["checkpoints-healthy"]().view
    picture = Picture(replace(SCENES["stopped"](), view=view))
    lines = drawn("checkpoints", picture, 120, 40)
    shown = [text for text in lines if text.split()[:2] in (["P", "pause"], ["S", "stop"])]
    assert len(shown) == 2
    assert all("not before rank 1, stopped, reaches the end of a step" in text for text in shown)
