"""Keys, palette, footer and help cannot disagree: all come from the one registry."""

import inspect

import pytest
from textual.app import App

from rankscope.tui.dashboard.action import SCREENS, Action
from rankscope.tui.dashboard.actions import ACTIONS, footer_actions
from rankscope.tui.dashboard.console import Dashboard
from rankscope.tui.dashboard.leaving import Leaving
from rankscope.tui.dashboard.mailbox import Mailbox
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.help import FIGURES, help_lines
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.screens.base import DIRECTIONS, Room
from rankscope.tui.dashboard.screens.help import HelpScreen
from rankscope.tui.dashboard.screens.overview import OverviewScreen
from rankscope.tui.feed.poller import Poller
from support.scenes import SCENES


def app() -> Dashboard:
    def connect() -> None:
        raise AssertionError("never started")

    poller = Poller(connect, 1.0, lambda snapshot: None)  # type: ignore[arg-type]
    return Dashboard(poller, Mailbox(), Leaving(), title="", readonly=True, utf8=True)


def argument(action: Action) -> object:
    return action.name.partition("'")[2].partition("'")[0]


def shown(navigation: Navigation) -> str:
    return navigation.screen.name


def test_no_key_has_two_meanings() -> None:
    """Every key stands in the registry once."""
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))


def test_the_app_binds_the_registry_and_nothing_else() -> None:
    """Each key does what the registry says; of Textual's own only Ctrl-Q (quit) is left."""
    bound = {
        key: binding.action
        for key, bindings in Dashboard._merged_bindings.key_to_bindings.items()  # type: ignore[union-attr]
        for binding in bindings
    }
    wanted = {key: action.name for action in ACTIONS for key in action.keys}
    assert {key: name for key, name in bound.items() if key != "ctrl+q"} == wanted


def test_every_action_has_a_method() -> None:
    """No key of the registry leads nowhere."""
    for action in ACTIONS:
        name = action.name.partition("(")[0]
        assert callable(getattr(Dashboard, f"action_{name}")), action.name
        if name == "move":
            assert argument(action) in DIRECTIONS
        if name == "go":
            assert argument(action) in SCREENS


def test_no_action_shadows_one_that_textual_awaits() -> None:
    """Textual calls some of its own actions itself and awaits them: ours have other names."""
    for action in ACTIONS:
        method = f"action_{action.name.partition('(')[0]}"
        ours, theirs = getattr(Dashboard, method), getattr(App, method, None)
        if theirs is not None and ours is not theirs:
            assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), method


def test_help_names_every_key_and_says_what_it_does() -> None:
    """The help is the registry, whole."""
    text = " ".join(" ".join(text_of(line) for line in help_lines(120)).split())
    for action in ACTIONS:
        assert f"{action.all_keys_text} {action.help}" in text


@pytest.mark.parametrize("figure", ["agent cost", "dropped", "missed"])
def test_help_says_what_the_figures_at_the_foot_count(figure: str) -> None:
    """Each that stands on a screen without a word on what it is."""
    assert figure in {name for name, _ in FIGURES}
    lines = [text_of(line).strip() for line in help_lines(120)]
    assert any(line.startswith(f"{figure}  ") for line in lines)


@pytest.mark.parametrize("ends_run", [False, True])
def test_help_and_footer_say_what_leaving_does_to_the_run(ends_run: bool) -> None:
    """It ends a demo; it does nothing to a run of one's own."""
    picture = Picture(SCENES["healthy-2"](), ends_run=ends_run)
    room = Room(160, 80, 0.0)
    text = " ".join(
        " ".join(text_of(line) for line in HelpScreen().layout(picture, room).lines(80)).split()
    )
    foot = text_of(OverviewScreen().layout(picture, room).lines(80)[-1])
    assert ("q end demo" in foot) is ends_run
    assert ("q quit" in foot) is not ends_run
    assert ("the run goes on" in text) is not ends_run
    assert ("the training ends" in text) is ends_run


@pytest.mark.parametrize("scene", ["finished", "failed"])
def test_leaving_a_demo_that_is_over_ends_nothing(scene: str) -> None:
    """Neither footer nor help speak of an end that has come."""
    room = Room(160, 80, 0.0)
    picture = Picture(SCENES[scene](), ends_run=True)
    foot = text_of(OverviewScreen().layout(picture, room).lines(80)[-1])
    assert "q quit" in foot
    helped = " ".join(text_of(line) for line in HelpScreen().layout(picture, room).lines(80))
    assert "the training ends" not in " ".join(helped.split())


def test_a_key_that_can_do_nothing_says_so() -> None:
    """In the footer, where one looks for keys."""
    room = Room(120, 30, 0.0, "no rank is in trouble")
    foot = text_of(OverviewScreen().layout(Picture(SCENES["healthy-2"]()), room).lines(30)[-1])
    assert foot.endswith("no rank is in trouble ")


def test_the_palette_offers_what_the_registry_says() -> None:
    """Every action for the palette is there, and none of Textual's own commands."""
    dashboard = app()
    offered = [
        (command.title, command.help)
        for command in dashboard.get_system_commands(None)  # type: ignore[arg-type]
    ]
    wanted = [(f"{a.label} ({a.key_text})", a.help) for a in ACTIONS if a.palette]
    assert [name.removesuffix(" · not now") for name, _ in offered] == [name for name, _ in wanted]
    for (name, told), (_, help_) in zip(offered, wanted, strict=True):
        assert (told == help_) is not name.endswith(" · not now")


def test_every_footer_begins_with_the_way_out_and_the_way_to_the_keys() -> None:
    """Help and quit are the last that a narrow footer loses."""
    for screen in SCREENS:
        labels = [action.label for action in footer_actions(screen)]
        assert labels[:2] == ["help", "quit"] if screen != "help" else labels[0] == "quit"


def test_a_digit_forgets_the_way_back_and_escape_takes_it() -> None:
    """Enter and v lead deeper, Esc leads back, a digit starts anew."""
    navigation = Navigation()
    navigation.go("ranks")
    navigation.open(3)
    navigation.go("evidence")
    assert shown(navigation) == "evidence"
    navigation.go_back()
    assert shown(navigation) == "rank"
    navigation.go_back()
    assert shown(navigation) == "ranks"
    navigation.open(5)
    navigation.go("overview")
    navigation.go_back()
    assert shown(navigation) == "overview"


def test_the_rank_looked_at_stays_selected_on_the_way_back() -> None:
    """After turning pages the table stands where one has come to."""
    picture = Picture(SCENES["healthy-8"]())
    navigation = Navigation()
    navigation.go("ranks")
    navigation.open(3)
    navigation.screen.select(6)
    navigation.go_back()
    assert navigation.screen.selected(picture) == 6


def test_next_trouble_goes_around() -> None:
    """The ranks that are not well come one after another, and again from the first."""
    picture = Picture(SCENES["stopped"]())
    navigation = Navigation()
    navigation.go("ranks")
    navigation.screen.select(2)
    seen = []
    for _ in range(5):
        navigation.trouble(picture)
        seen.append(navigation.screen.selected(picture))
    assert seen == [3, 0, 1, 2, 3]


def test_on_a_healthy_run_next_trouble_selects_nothing() -> None:
    """There is nothing to go to, and nothing moves."""
    picture = Picture(SCENES["healthy-8"]())
    navigation = Navigation()
    navigation.go("ranks")
    navigation.screen.select(4)
    navigation.trouble(picture)
    assert navigation.screen.selected(picture) == 4
