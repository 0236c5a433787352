"""No key is refused without a word, and the footer shows what works here and now."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from rankscope.protocol.shapes import CheckpointsView
from rankscope.tui.dashboard.action import Action, ScreenName
from rankscope.tui.dashboard.actions import ACTIONS
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.offers import NOT_PAUSED, OVER, PAUSED
from rankscope.tui.words.checkpoints import command_of
from support import control, scenes
from support.inprocess import Desk, board
from support.scenes import pages
from support.world import World

LEADING_OUT = ("leave", "interrupt", "command_palette", "write_screen", "redraw")


def running() -> World:
    world = World(ranks=4, per_node=2)
    for _ in range(12):
        world.step()
    world.tick()
    return world


def ended() -> World:
    world = running()
    for rank in range(4):
        world.finish(rank)
    world.run_end()
    world.advance(1.0)
    return world


@pytest.mark.parametrize(("make", "readonly"), [(running, False), (running, True), (ended, False)])
def test_every_key_does_something_or_says_why_not(
    make: Callable[[], World], readonly: bool
) -> None:
    """On the first screen and on a page; only the key of the screen that is shown is silent."""

    async def play() -> None:
        async with board(make(), readonly=readonly, size=(120, 40)) as desk:
            await desk.sees("rankscope", "node-0", "quit")
            for name in ("overview", "checkpoints"):
                for action in ACTIONS:
                    if action.name not in (*LEADING_OUT, f"go('{name}')"):
                        await pressed(desk, name, action)

    asyncio.run(play())


async def pressed(desk: Desk, name: str, action: Action) -> None:
    app = desk.app
    app._navigation.go("stacks")  # whatever was opened is left
    app._navigation.go(name)  # type: ignore[arg-type]
    app._navigation.screen.filter = ""
    app._thaw()
    app._moved()
    drawn = lambda text: "quit" in text.splitlines()[-1] and "asking" not in text  # noqa: E731
    await desk.until(drawn, "the view has come")
    before = list(app.lines[1:])
    await app._do(action)
    after = list(app.lines[1:])
    assert after != before, f"{action.key_text} on {name}:\n" + desk.text()
    app._control.question, app._typed = "", None


def foot(name: str, picture: Picture, room: Room) -> str:
    navigation = Navigation()
    navigation.go(name)  # type: ignore[arg-type]
    return text_of(navigation.screen.layout(picture, room).lines(room.height)[-1])


def on_checkpoints(possible: dict[str, str], **room: object) -> str:
    shown = pages.SCENES["checkpoints-healthy"]()
    assert isinstance(shown.view, CheckpointsView)
    view = msgspec.structs.replace(shown.view, possible=possible)
    picture = Picture(replace(shown, view=view))
    return foot("checkpoints", picture, Room(80, 24, 0.0, **room))  # type: ignore[arg-type]


NO_SAVER = "this run has no checkpointer"


def test_the_footer_of_commands_shows_those_that_are_possible_and_no_other() -> None:
    """At 80 columns, whatever is possible: a pause, no checkpointer, a run that can do all."""
    everything = dict.fromkeys(("checkpoint", "checkpoint-and-stop", "pause", "stop"), "")
    nothing = {"resume": NOT_PAUSED, "cancel": "there is nothing to cancel"}
    shown = on_checkpoints(everything | nothing, locked="")
    assert all(key in shown for key in ("c checkpoint", "C save and stop", "P pause", "S stop"))
    assert "resume" not in shown
    assert "cancel" not in shown
    no_saver = {"checkpoint": NO_SAVER, "checkpoint-and-stop": NO_SAVER, "pause": "", "stop": ""}
    shown = on_checkpoints(no_saver | nothing, locked="")
    assert "P pause" in shown
    assert "S stop" in shown
    assert "checkpoint" not in shown
    shown = on_checkpoints(dict.fromkeys(everything, PAUSED) | {"resume": "", "cancel": PAUSED})
    assert "u unlock" in shown
    shown = on_checkpoints(
        dict.fromkeys(everything, PAUSED) | {"resume": "", "cancel": PAUSED}, locked=""
    )
    assert "R resume" in shown
    assert not any(word in shown for word in ("checkpoint", "pause", "stop", "cancel", "unlock"))


def test_while_a_question_is_open_the_footer_shows_its_answers_alone() -> None:
    """No other key does anything then."""
    for name in ("overview", "checkpoints"):
        shown = foot(name, Picture(scenes.SCENES["healthy-2"]()), Room(80, 24, 0.0, question=True))
        assert shown.split() == ["y", "yes", "n", "Esc", "no"]


def test_a_paused_run_can_be_resumed_from_its_first_screen() -> None:
    """Before the ways to elsewhere, so that a narrow terminal has it, too."""
    picture = Picture(pages.SCENES["overview-paused"]())
    assert "R resume" in foot("overview", picture, Room(80, 24, 0.0, locked=""))
    assert "u unlock" in foot("overview", picture, Room(80, 24, 0.0))


def test_nothing_is_offered_to_open_or_filter_where_there_is_nothing() -> None:
    """An incident log without an entry."""
    shown = foot("incidents", Picture(pages.SCENES["incidents-none"]()), Room(120, 40, 0.0))
    assert "open" not in shown
    assert "filter" not in shown


@pytest.mark.parametrize("name", ["overview", "checkpoints"])
def test_a_run_that_is_over_offers_no_command(name: str) -> None:
    """One line says so where the commands would stand."""
    picture = Picture(pages.SCENES["checkpoints-over"]())
    shown = foot(name, picture, Room(200, 50, 0.0, locked=""))
    words = ("checkpoint", "pause", "resume", "stop", "cancel", "unlock")
    assert not any(word in shown for word in words)
    navigation = Navigation()
    navigation.go("checkpoints")
    lines = navigation.screen.layout(picture, Room(120, 40, 0.0)).lines(40)
    assert sum(OVER in text_of(line) for line in lines) == 1
    assert not any("not now" in text_of(line) for line in lines)


CONTROLS = [action for action in ACTIONS if action.group == "control" and action.name != "unlock"]


def paused() -> World:
    world = running()
    for rank in range(4):
        control.controlled(world, rank, "paused", request=1, boundary=12, command="pause")
    world.tick()
    return world


@pytest.mark.parametrize("screen", ["overview", "checkpoints"])
@pytest.mark.parametrize("make", [running, paused, ended])
def test_what_the_hub_would_refuse_is_not_asked_about_on_any_screen(
    make: Callable[[], World], screen: ScreenName
) -> None:
    """Its key says the hub's reason at once, the footer leaves it out, the palette says it, too."""
    world = make()
    possible = world.view("checkpoints").possible

    async def play() -> None:
        async with board(world, unlocked=True, size=(160, 40)) as desk:
            await desk.sees("node-0", "quit")
            app = desk.app
            app.action_go(screen)
            await desk.until(lambda text: "asking" not in text, "the view has come")
            in_palette = {one.title: one.help for one in app.get_system_commands(app.screen)}
            for action in CONTROLS:
                name = command_of(action.name)
                await app._do(action)
                assert (app._control.question == name) is (possible[name] == "")
                app._control.question = ""
                title = f"{action.label} ({action.key_text})"
                if possible[name]:
                    assert possible[name] in desk.text().replace("\n", " ") or make is ended
                    assert f"{title} · not now" in in_palette
                    foot = desk.text().splitlines()[-1]
                    assert f"{action.key_text} {action.label}" not in foot
                else:
                    assert in_palette[title] == action.help

    asyncio.run(play())
