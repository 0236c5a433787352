"""What keys do, in a dashboard over a real hub in the same process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.command import CommandList
from textual.events import Key

from rankscope.protocol import messages as m
from rankscope.tui.dashboard.action import BASES
from rankscope.tui.dashboard.runwatch import begun_since
from rankscope.tui.dashboard.source import Choice, Source
from rankscope.tui.runs import ListedRun
from support.inprocess import Desk, board, feed
from support.scenes import pages
from support.world import World

Play = Callable[[Desk], Awaitable[None]]


def played(world: World, play: Play, **options: Any) -> None:
    """A dashboard over ``world`` while ``play`` presses keys."""

    async def whole() -> None:
        async with board(world, **options) as desk:
            await play(desk)

    asyncio.run(whole())


def running(ranks: int = 4) -> World:
    world = World(ranks=ranks, per_node=2)
    for _ in range(12):
        world.step()
    world.tick()
    return world


def saves(world: World, phase: str = "idle", **fields: Any) -> None:
    """Every rank says that it can follow requests and has a checkpointer, or how far it is."""
    for rank, sim in world.ranks.items():
        at_s = world.now_s + sim.clock_s
        request = fields.get("request", 0)
        world.from_rank(
            rank, m.Controlled, phase=phase, phase_t_s=at_s, request=request, saver=True
        )
        told = {"step": 0, "request": 0, "phase": phase, "phase_t_s": at_s}
        world.from_rank(rank, m.Saving, **(told | fields))


def test_tab_goes_through_the_screens_in_the_order_of_their_digits() -> None:
    """Around and back, and each of them is drawn with the verdict on top."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        for name in (*BASES[1:], BASES[0]):
            await desk.press("tab")
            assert desk.app._navigation.screen.name == name
            await desk.sees("? help", "healthy")
        await desk.press("shift+tab")
        assert desk.app._navigation.screen.name == BASES[-1]

    played(running(), play)


def test_a_filter_shows_only_what_it_admits_while_it_is_typed() -> None:
    """Enter keeps it, n and N move in what is left, Esc takes it away before it leads back."""

    async def play(desk: Desk) -> None:
        await desk.press("2")
        await desk.sees("node-0", "node-1")
        await desk.press("slash", *"node-1")
        text = await desk.until(lambda text: "node-0" not in text, "only node-1")
        assert "/node-1" in text
        await desk.press("enter")
        await desk.sees("▸    2", "? help")
        await desk.press("n")
        await desk.sees("▸    3")
        await desk.press("N")
        await desk.sees("▸    2")
        await desk.press("escape")
        await desk.sees("node-0")
        assert desk.app._navigation.screen.name == "ranks"

    played(running(), play)


def test_what_is_typed_ahead_means_what_it_would_have_meant() -> None:
    """Over a slow link many keys come at once: they act in their order."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        for key in ("2", "slash", "1", "minus", "2", "enter", "j"):
            desk.app.post_message(Key(key, {"minus": "-", "slash": "/"}.get(key, key)))
        await desk.sees("▸    2", "/1-2")

    played(running(), play)


def test_slash_on_the_overview_filters_the_table_of_ranks() -> None:
    """A number is a rank."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        await desk.press("slash", "3", "enter")
        await desk.sees("▸    3")
        assert desk.app._navigation.screen.name == "ranks"
        await desk.press("enter")
        await desk.sees("rank 3", "pid 1003")

    played(running(), play)


def test_ranks_are_sorted_by_another_column_with_each_press() -> None:
    """The footer says by which."""
    world = running()
    world.stop(2)
    world.advance(1.0)

    async def play(desk: Desk) -> None:
        await desk.press("2", "o")
        text = await desk.sees("by state")
        rows = [line for line in text.splitlines() if "node-" in line]
        assert "stopped" in rows[0]

    played(world, play)


def test_a_dashboard_that_may_only_look_cannot_be_unlocked() -> None:
    """The keys say so, and nothing is asked."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        for key in ("u", "c", "S"):
            await desk.press(key)
            await desk.sees("--readonly", "only looks")
            assert not desk.app._control.question

    played(running(), play, readonly=True, size=(120, 30))


def test_a_command_is_locked_then_asked_about_then_given_and_its_end_is_told() -> None:
    """u, c, y: the hub is asked, the ranks save, and the footer says what came of it."""
    world = running()
    saves(world)

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        await desk.press("c")
        await desk.sees("commands are locked: u unlocks them")
        await desk.press("u")
        await desk.sees("Unlock commands on this run?")
        await desk.press("y")
        await desk.sees("commands unlocked")
        await desk.press("c")
        text = await desk.sees("Save a checkpoint now?")
        assert "All 4 ranks save at the same step, about step 14" in text
        await desk.press("n")
        await desk.until(lambda text: "Save a checkpoint" not in text, "the question is gone")
        assert not asked(world, desk)
        await desk.press("c", "x", "j")  # other keys answer nothing
        await desk.sees("Save a checkpoint now?")
        await desk.press("y")
        request = await until(lambda: asked(world, desk))
        with desk.lock:
            saves(
                world,
                "done",
                step=14,
                request=request,
                path="/ckpt/step-14",
                total_bytes=1000,
            )
            world.advance(1.0)
        await desk.sees("checkpoint of step 14 verified: /ckpt/step-14")

    played(world, play, size=(120, 30))


def test_what_is_told_of_a_save_gives_way_to_a_newer_checkpoint() -> None:
    """The footer would name another one than the line above it as the newest."""
    world = running()
    saves(world)

    async def play(desk: Desk) -> None:
        await desk.press("c", "y")
        request = await until(lambda: asked(world, desk))
        done = {"path": "/ckpt/step-14", "total_bytes": 1000}
        with desk.lock:
            saves(world, "done", step=14, request=request, **done)
            world.advance(1.0)
        await desk.sees("checkpoint of step 14 verified: /ckpt/step-14", "step 14 verified")
        with desk.lock:
            saves(world, "done", step=20, path="/ckpt/step-20", total_bytes=1000)
            world.advance(1.0)
        await desk.sees("step 20 verified")
        await desk.until(lambda text: "step 14" not in text, "only the newest one")

    played(world, play, size=(120, 30), unlocked=True)


def asked(world: World, desk: Desk) -> int:
    """The request that the hub has in work; 0 for none."""
    with desk.lock:
        return int(world.view("checkpoints").request)


async def until(condition: Callable[[], Any]) -> Any:
    for _ in range(1500):
        if value := condition():
            return value
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come")


def test_what_the_hub_refuses_is_told_with_the_reason() -> None:
    """In full, also at 80 columns: a loop that gives no boundary takes no commands."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy", "commands unlocked")
        await desk.press("c")
        text = await desk.sees("checkpoint, not now:", "end_step", "? help")
        assert "no call of end_step" in " ".join(text.split())
        assert "…" not in text
        desk.app._control.question = "checkpoint"  # it was possible when it was asked about
        await desk.press("y")
        await desk.sees("checkpoint refused:", "end_step", "? help")
        assert "no call of end_step" in " ".join(desk.text().split())
        assert "…" not in desk.text()

    played(running(), play, unlocked=True, size=(80, 24))


def test_a_yes_to_what_was_refused_does_not_look_as_if_it_had_been_given() -> None:
    """The reason stays, whatever ``y`` does elsewhere; pressed once more it does that."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy", "commands unlocked")
        await desk.press("c")
        await desk.sees("checkpoint, not now:", "end_step")
        await desk.press("y")
        text = await desk.sees("nothing was given: checkpoint, not now:", "end_step")
        assert "clipboard" not in text
        await desk.press("y")
        await desk.sees("the verdict with its evidence was sent")

    played(running(), play, unlocked=True)


def test_the_screen_of_commands_says_that_none_can_be_given_from_here() -> None:
    """Not as if they could: neither in their list nor in the footer."""

    async def play(desk: Desk) -> None:
        await desk.press("8")
        text = await desk.sees("this dashboard only looks", "what came of saves")
        assert "u unlock" not in text.splitlines()[-1]

    async def locked(desk: Desk) -> None:
        await desk.press("8")
        text = await desk.sees("locked: u unlocks them", "what came of saves")
        assert "u unlock" in text.splitlines()[-1]
        await desk.press("u", "y")
        await desk.until(lambda text: "u unlock" not in text.splitlines()[-1], "unlocked")
        assert "locked: u unlocks" not in desk.text()

    played(running(), play, readonly=True, size=(100, 30))
    played(running(), locked, size=(100, 30))


def test_who_wants_control_and_may_only_look_is_told_so_at_once() -> None:
    """Not when the first command is needed."""

    async def play(desk: Desk) -> None:
        text = await desk.sees("healthy", "this dashboard only looks")
        assert "commands unlocked" not in text

    played(running(), play, readonly=True, unlocked=True, size=(120, 30))


def test_no_key_leads_out_that_is_in_no_list() -> None:
    """Ctrl-S and Ctrl-Q are typed out of habit; the next keys would be the shell's."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        await desk.press("ctrl+s", "ctrl+q", "ctrl+z", "ctrl+backslash", "2")
        await desk.sees("a step")

    played(running(), play)


def test_a_run_that_is_over_takes_no_commands() -> None:
    """Nothing is asked."""
    world = running(1)
    world.finish(0)
    world.run_end()
    world.advance(1.0)

    async def play(desk: Desk) -> None:
        await desk.sees("finished")
        await desk.press("c")
        await desk.sees("the run is over")

    played(world, play, unlocked=True)


def test_copy_takes_the_verdict_with_its_evidence() -> None:
    """What a colleague is sent."""
    world = running()
    world.kill(2)
    world.advance(1.0)

    async def play(desk: Desk) -> None:
        await desk.sees("SIGKILL")
        await desk.press("y")
        await desk.sees("the verdict with its evidence was sent to the terminal's clipboard")
        copied = desk.app.clipboard
        assert "rank 2 died: SIGKILL" in copied
        assert "evidence" in copied
        assert copied.isprintable() is False  # lines
        assert "\x1b" not in copied

    played(world, play)


def test_write_keeps_the_whole_screen_also_what_is_scrolled_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a new file of this folder that only its owner can read."""
    monkeypatch.chdir(tmp_path)

    async def play(desk: Desk) -> None:
        await desk.press("2")
        await desk.sees("node-0")
        await desk.press("w", "w")
        await desk.until(lambda text: len(list(tmp_path.iterdir())) == 2, "two files")

    played(running(40), play)
    for path in tmp_path.iterdir():
        assert path.name.startswith("rankscope-run-1-ranks-")
        assert path.stat().st_mode & 0o077 == 0
        lines = path.read_text().splitlines()
        assert sum("node-" in line for line in lines) == 40
        assert not any("? help" in line for line in lines)


def test_the_look_can_be_changed_and_comes_around() -> None:
    """Colours, strong ones, none."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        for words in ("strong colours", "no colours", "colours"):
            await desk.press("t")
            await desk.sees(words)

    played(running(), play, size=(120, 30))


def test_enter_in_the_list_of_runs_goes_over_to_another_run() -> None:
    """Its overview is shown, and commands have to be unlocked anew."""
    other = running(2)
    other.state.name = "another"
    other.state.head_changed = other.state.version = other.state.version + 1
    lock = threading.RLock()
    opened: list[str] = []

    def open_(path: str) -> Source:
        opened.append(path)
        return Source(feed(other, lock), "another")

    choice = Choice(lambda: pages.RUNS, open_)

    async def play(desk: Desk) -> None:
        await desk.sees("healthy", "4 ranks", "commands unlocked")
        await desk.press("9")
        await desk.sees("20261129-161500-77aa01", "its hub is gone")
        await desk.press("j", "enter")
        text = await desk.sees("healthy", "2 ranks", "another")
        assert "commands unlocked" not in text
        assert opened == [pages.RUNS[1].path]

    played(running(), play, unlocked=True, choice=choice, size=(120, 30))


def test_the_palette_finds_an_action_by_a_few_letters() -> None:
    """As fuzzy as one types; Enter does it."""

    async def play(desk: Desk) -> None:
        await desk.sees("healthy")
        await desk.press("colon")
        await until(lambda: len(desk.app.screen_stack) > 1)
        await desk.press(*"incid")
        hits = desk.app.screen.query_one(CommandList)
        await until(lambda: hits.option_count and "incidents" in str(hits.options[0].prompt))
        await desk.press("enter")
        await until(lambda: desk.app._navigation.screen.name == "incidents")

    played(running(), play)


def test_everything_is_drawn_anew_for_another_size() -> None:
    """Also with a question on the screen."""

    async def play(desk: Desk) -> None:
        await desk.press("u")
        await desk.sees("Unlock commands")
        await desk.pilot.resize_terminal(120, 40)
        await desk.until(lambda text: len(desk.app.lines) == 40, "forty lines")
        assert "Unlock commands" in desk.text()
        await desk.pilot.resize_terminal(40, 10)
        await desk.until(lambda text: len(desk.app.lines) == 10, "ten lines")
        assert "Unlock commands" in desk.text()

    played(running(), play)


def test_over_a_run_that_has_ended_nothing_comes_later_and_nothing_is_frozen() -> None:
    """Neither is called live, nor is the way back offered where there is none to go."""
    world = running(2)
    for rank in (0, 1):
        world.finish(rank)
    world.run_end(0)
    world.advance(2.0)

    async def play(desk: Desk) -> None:
        await desk.sees("finished")
        for key in ("right_square_bracket", "right_curly_bracket", "p"):
            await desk.press(key)
            text = await desk.sees("the run is over: nothing comes later")
            assert "this is live" not in text
            assert "frozen" not in text
            await desk.press("escape")

    played(world, play, size=(120, 30))


def test_over_a_run_that_has_ended_it_is_said_that_another_has_begun() -> None:
    """Whoever asked for the newest run before there was this one finds it; where it is listed
    already nothing is said, and of an older one that lives on neither."""
    world = running(2)
    run = world.state.run
    mine = ListedRun(run, "ended", "", 100.0, 200.0, 0, 2, None, [], "/a")
    other = ListedRun("run-2", "live", "gpt", 300.0, None, None, 2, None, [], "/b")
    assert begun_since([other, mine], run) != ""
    older = msgspec.structs.replace(other, created_s=50.0)
    assert begun_since([mine, older], run) == ""
    assert begun_since([other], run) == ""
    there: list[ListedRun] = [mine]
    for rank in (0, 1):
        world.finish(rank)
    world.run_end(0)
    world.advance(2.0)

    def none(path: str) -> Source:
        raise AssertionError(path)

    async def play(desk: Desk) -> None:
        await desk.sees("finished")
        assert "has begun since" not in desk.text()
        there.append(other)
        await desk.sees("a run has begun since: 9 lists it")
        await desk.press("9")
        await desk.until(lambda text: "has begun since" not in text, "the list alone")

    played(world, play, size=(120, 30), choice=Choice(lambda: list(there), none))
