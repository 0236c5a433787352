"""Whatever a screen holds can be scrolled to, on a small terminal, with any of the keys for it."""

from collections.abc import Callable
from typing import Any

import pytest

from rankscope.tui.dashboard.action import SCREENS, ScreenName
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Direction, Room
from support.scenes import SCENES, hangs, numerics, pages

OF_VIEWS: list[tuple[ScreenName, str, Callable[[], Any]]] = [
    ("numerics", scene, made) for scene, made in numerics.SCENES.items()
]
for scenes in (hangs.SCENES, pages.SCENES):
    for scene, made in scenes.items():
        first = scene.partition("-")[0]
        if first in SCREENS and first != "runs":
            OF_VIEWS.append((first, scene, made))
OF_RUNS = [
    (name, scene, SCENES[scene])
    for name in ("overview", "ranks", "evidence")
    for scene in SCENES
    if not scene.startswith("fleet")
]
ROOMS = (Room(80, 24, 0.0), Room(60, 15, 0.0))


@pytest.mark.parametrize(("keys", "back"), [("down", "up"), ("page_down", "page_up")])
@pytest.mark.parametrize("room", ROOMS, ids=["80x24", "60x15"])
@pytest.mark.parametrize(
    ("name", "scene", "made"),
    [*OF_RUNS, *OF_VIEWS],
    ids=[f"{name}-{scene}" for name, scene, _ in (*OF_RUNS, *OF_VIEWS)],
)
def test_the_last_line_and_the_first_are_reached(
    name: ScreenName,
    scene: str,
    made: Callable[[], Any],
    room: Room,
    keys: Direction,
    back: Direction,
) -> None:
    """By going on with one key, and back by its opposite."""
    picture = Picture(made(), title="20261129-163000-k3f9ab")
    navigation = Navigation()
    navigation.go(name)
    screen = navigation.screen
    most = screen.layout(picture, room).count + len(picture.order) + 2
    for direction in (keys, back):
        reached = None
        for _ in range(most):
            screen.move(direction, picture, room)
            layout = screen.layout(picture, room)
            state = (layout.offset, screen.selected(picture))
            if state == reached:
                break
            reached = state
        ends = layout.offset + layout.seen(room.height) >= layout.count
        assert ends if direction == keys else layout.offset == 0, (direction, layout.offset)
