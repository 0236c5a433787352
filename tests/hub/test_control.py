"""Requests that act on a run as the hub sees them: who may ask what when, and what is said."""

import re
from typing import Any

import pytest

from rankscope.hub.incidents import Incidents
from rankscope.hub.orders import LAST_WORDS_S
from rankscope.hub.state.saves import Outcome
from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from support.control import command, controlled, orders
from support.world import World

PAUSE = {"command": "pause", "author": "ada@laptop"}


def ready(ranks: int = 2, **fields: Any) -> World:
    """A run whose ranks follow requests."""
    world = World(ranks=ranks)
    for rank in range(ranks):
        controlled(world, rank, **fields)
    return world.step()


def view(world: World) -> shapes.CheckpointsView:
    world.tick()
    found = world.view("checkpoints")
    assert isinstance(found, shapes.CheckpointsView)
    return found


def paused(world: World, **fields: Any) -> int:
    """All ranks stand still after step 4; the number of the request."""
    number = command(world, "pause", minutes=10).reference
    for rank in world.ranks:
        of = {"request": number, "boundary": 4, "expires_s": 600.0, **PAUSE}
        controlled(world, rank, "paused", **of, **fields)
    return number


def log(world: World) -> list[str]:
    """The headlines of what was asked for and came of it."""
    shown = world.core.know.incidents.shown
    return [entry.finding.headline for entry in shown if entry.command is not None]


def test_a_pause_is_a_state_of_the_run_and_no_hang() -> None:
    """However long: no finding, no stall; the view says since when, by whom and until when."""
    world = ready()
    number = paused(world)
    world.advance(400.0)
    assert world.status().state == "paused"
    assert world.findings() == []
    now = view(world)
    assert now.command is not None
    assert (now.command.state, now.command.step, now.command.request) == ("paused", 4, number)
    assert now.paused is not None
    assert (now.paused.author, now.paused.ranks) == ("ada@laptop", [0, 1])
    assert now.paused.expires_s == pytest.approx(200.0, abs=2.0)
    assert now.possible["resume"] == ""
    assert "rankscope resume" in now.possible["pause"]
    assert re.match("paused after step 4 by ada@laptop for 6 min", world.status().control)

    assert command(world, "resume", author="bob@laptop").accepted
    told = orders(world.core)
    assert {(order.command, order.target) for order in told.values()} == {("resume", number)}
    assert sorted(told) == ["rank 0", "rank 1"]
    for rank in world.ranks:
        text = "paused after step 4, resumed by bob@laptop"
        controlled(world, rank, "done", request=number, boundary=4, text=text, **PAUSE)
    world.tick()
    assert world.status().state == "running"
    assert world.status().control == ""
    assert log(world) == [
        "ada@laptop asks for: pause",
        "bob@laptop asks for: resume",
        f"pause by ada@laptop is done: {text}",
        f"resume by bob@laptop is done: {text}",
    ]
    assert [one.state for one in view(world).commands] == ["done", "done"]


def test_a_paused_run_is_saved_where_it_stands() -> None:
    """What is asked for meanwhile is one request at a time, of which the pause is none; both are
    told of, and resuming means the pause. No step is made, and none is shown."""
    world = ready(saver=True).step().step().step()
    pause = paused(world, saver=True)
    possible = view(world).possible
    allowed = {name for name, why in possible.items() if not why}
    assert allowed == {"checkpoint", "checkpoint-and-stop", "stop", "resume"}
    orders(world.core)
    world.advance(60.0)
    number = command(world, "checkpoint", author="bob@laptop").reference
    assert {order.command for order in orders(world.core).values()} == {"checkpoint"}
    now = view(world)
    assert now.command is not None
    assert (now.command.request, now.command.state) == (number, "waiting")
    assert now.paused is not None
    assert now.paused.request == pause
    assert " more at most; checkpoint, asked for by" in now.note
    assert now.note.endswith("; checkpoint, asked for by bob@laptop: the ranks are told")
    assert "bob@laptop has asked for a checkpoint already" in command(world, "stop").text
    assert command(world, "resume").accepted
    assert {(order.command, order.target) for order in orders(world.core).values()} >= {
        ("resume", pause)
    }
    of = {"request": number, "command": "checkpoint", "author": "bob@laptop", "boundary": 4}
    for rank in world.ranks:
        controlled(world, rank, "done", text="all ranks save after step 4", saver=True, **of)
        assert world.status().state == "paused"
        of_save = {"step": 4, "request": number, "phase_t_s": world.now_s, "path": "/step-4"}
        world.from_rank(rank, m.Saving, phase="done", text="complete", **of_save)
        assert world.view("overview").steps_per_s == 0.0
    assert ("checkpoint", "done") in {(one.command, one.state) for one in view(world).commands}
    assert world.status().state == "paused"
    for rank in world.ranks:
        controlled(world, rank, "done", request=pause, boundary=4, text="resumed", **PAUSE)
    told = {(one.command, one.state) for one in view(world).commands}
    assert told >= {("checkpoint", "done"), ("pause", "done"), ("resume", "done")}
    assert view(world).command is None


def test_a_run_that_stops_while_it_is_paused_ends_both_requests() -> None:
    """Also where the hub was restarted in between, and had them from the ranks alone."""
    world = ready()
    pause = paused(world)
    world.tick()
    number = command(world, "stop", author="bob@laptop").reference
    stop = {"request": number, "command": "stop", "author": "bob@laptop", "boundary": 4}
    for rank in world.ranks:
        controlled(world, rank, "done", stop_step=4, text="training stops after step 4", **stop)
        text = "paused after step 4, ended by the stop of bob@laptop"
        controlled(world, rank, "done", stop_step=4, request=pause, boundary=4, text=text, **PAUSE)
    told = {(one.command, one.state) for one in view(world).commands}
    assert told == {("stop", "done"), ("pause", "done")}
    assert world.status().control == "training was told to stop after step 4"


def test_pauses_are_known_with_what_was_done_in_them() -> None:
    """From the first rank that stood to the last that went on, whatever they say meanwhile; also
    behind a restart of the hub."""
    world = ready(saver=True)
    number = paused(world)
    begin_s = world.now_s
    world.advance(100.0)
    of = {"request": number + 1, "command": "checkpoint", "boundary": 4}
    controlled(world, 0, "done", text="all ranks save after step 4", **of)
    world.advance(100.0)
    for rank in world.ranks:
        controlled(world, rank, "done", request=number, boundary=4, text="resumed", **PAUSE)
    [(from_s, until_s)] = world.state.controls.pauses
    assert from_s == pytest.approx(begin_s, abs=1.0)
    assert until_s == pytest.approx(begin_s + 200.0, abs=1.0)
    fresh = type(world.state.controls)()
    fresh.load(world.state.controls.dump())
    assert fresh.pauses == world.state.controls.pauses


def test_a_rank_that_dies_while_the_run_is_paused_is_found() -> None:
    """As at any other time."""
    world = ready()
    paused(world)
    world.advance(30.0)
    world.kill(1).advance(1.0)
    assert "rank-dead" in world.kinds()


def test_a_second_request_is_told_who_has_asked_for_what() -> None:
    """Until the first is over; all of it is in the log."""
    world = ready()
    number = command(world, "stop").reference
    second = command(world, "pause", author="bob@laptop")
    assert not second.accepted
    assert second.reference == 0
    assert second.text == "ada@laptop has asked for a stop already"
    for rank in world.ranks:
        controlled(
            world, rank, "given-up", request=number, text="rank 1 did not come", command="stop"
        )
    world.tick()
    assert log(world)[-2:] == [
        "pause by bob@laptop was refused: ada@laptop has asked for a stop already",
        "stop by ada@laptop was given up: rank 1 did not come",
    ]
    assert command(world, "pause", author="bob@laptop").accepted


def test_a_request_can_be_cancelled_and_afterwards_there_is_nothing_to_cancel() -> None:
    """The order to cancel goes to all ranks, in place of the request."""
    world = ready()
    assert "nothing to cancel" in command(world, "cancel").text
    number = command(world, "stop").reference
    orders(world.core)
    cancelling = command(world, "cancel", author="bob@laptop")
    assert cancelling.accepted
    told = orders(world.core)
    assert {(order.command, order.target) for order in told.values()} == {("cancel", number)}
    assert "asked for that already" in command(world, "cancel").text
    for rank in world.ranks:
        text = "cancelled by bob@laptop"
        controlled(world, rank, "cancelled", request=number, text=text, command="stop")
    world.tick()
    states = {(one.command, one.state) for one in view(world).commands}
    assert {("stop", "cancelled"), ("cancel", "done")} <= states
    assert "nothing to cancel" in command(world, "cancel").text
    assert world.findings() == []


def test_what_is_to_be_cancelled_says_who_has_not_answered() -> None:
    """As long as one has not; after that another command is accepted, whatever was agreed."""
    world = ready(saver=True)
    number = command(world, "checkpoint").reference
    of = {"request": number, "command": "checkpoint", "boundary": 4, "saver": True}
    for rank in world.ranks:
        controlled(world, rank, "agreed", text="agreed: after step 4", **of)
    assert command(world, "cancel", author="bob@laptop").accepted
    assert view(world).pending == "pending: to be cancelled, but ranks 0 1 have not answered"
    controlled(world, 1, "cancelled", text="cancelled by bob@laptop", **of)
    assert view(world).pending == "pending: to be cancelled, but rank 0 has not answered"
    assert command(world, "cancel").text.endswith("already; rank 0 has not answered")
    controlled(world, 0, "cancelled", text="cancelled by bob@laptop", **of)
    states = {(one.command, one.state) for one in view(world).commands}
    assert {("checkpoint", "cancelled"), ("cancel", "done")} <= states
    assert command(world, "stop").accepted


def test_who_is_waited_for_is_said() -> None:
    """A rank that has not heard, one in evaluation, one that is not at the boundary yet."""
    world = ready(3)
    number = command(world, "pause").reference
    of = {"request": number, **PAUSE}
    for rank in (0, 1):
        controlled(world, rank, "waiting", **of)
    assert view(world).pending == "pending: rank 2 has not heard of it"
    controlled(world, 2, "waiting", **of)
    world.beat(2, expecting="evaluation")
    assert view(world).pending == "pending: rank 2 is in evaluation"
    assert view(world).note == "pause, asked for by ada@laptop: rank 2 is in evaluation"
    controlled(world, 0, "arrived", boundary=7, **of)
    assert view(world).pending.startswith("pending: at the boundary after step 7; ranks 1 2")


def test_what_cannot_be_asked_for_is_refused_in_words() -> None:
    """No boundary, no checkpointer, a rank that is missing, dead, or unable; a run that is over."""
    world = World(ranks=2)
    for rank in range(2):
        world.hello(rank, boundary=False)
    assert command(world, "stop").text.startswith("not yet: no step has ended")
    world.step()
    assert "this run gave no boundary: its loop" in command(world, "stop").text
    world.hello(0)
    world.hello(1)
    assert "ranks 0 1 gave no boundary yet" in command(world, "pause").text
    controlled(world, 0)
    assert "rank 1 gave no boundary yet" in command(world, "pause").text
    controlled(world, 1)
    assert "has no checkpointer" in command(world, "checkpoint").text
    controlled(world, 1, saver=True)
    assert "rank 0 has no checkpointer" in command(world, "checkpoint-and-stop").text
    assert "lasts 1 to 1440 minutes" in command(world, "pause", minutes=0).text
    controlled(world, 1, unable="torch.distributed is not initialised")
    assert "rank 1 cannot follow requests" in command(world, "stop").text
    controlled(world, 1)
    world.kill(1).tick()
    assert "rank 1 has ended: the ranks cannot agree without it" in command(world, "stop").text
    several = ready(ranks=3)
    several.kill(0)
    several.kill(1).tick()
    text = command(several, "stop").text
    assert "ranks 0 1 have ended: the ranks cannot agree without them" in text
    world.finish(0).advance(1.0)
    assert command(world, "stop").text == "the run is over"
    assert command(world, "resume").text == "the run is over"


def test_ranks_that_are_not_all_attached_are_named() -> None:
    """``attach`` on some ranks only."""
    world = World(ranks=1)
    world.size = 3
    world.hello(0)
    controlled(world, 0)
    text = command(world, "stop").text
    assert text == "ranks 1 2 have not been heard of: attach is to be called on all ranks"


def test_a_loop_that_does_not_look_is_told_of() -> None:
    """The ranks have agreed on a stop, and have gone on."""
    world = ready()
    number = command(world, "stop").reference
    of = {"command": "stop", "author": "ada@laptop", "request": number, "boundary": 5}
    for rank in world.ranks:
        controlled(world, rank, "done", stop_step=5, text="training stops after step 5", **of)
    world.tick()
    assert world.status().control == "training was told to stop after step 5"
    for rank in world.ranks:
        controlled(world, rank, stop_step=5, overrun=1)
    told = world.status().control
    assert told == "stop agreed at step 5; this loop does not look at agent.should_stop"
    assert "told to stop after step 5 already" in command(world, "pause").text


def test_requests_of_a_signal_and_of_a_hub_that_is_no_more_are_taken_over() -> None:
    """What the ranks are in is shown, and a second request is refused because of it."""
    world = ready(saver=True)
    for rank in world.ranks:
        controlled(
            world,
            rank,
            "saving",
            request=1,
            boundary=9,
            command="checkpoint-and-stop",
            author="a signal (SIGUSR1) on rank 1",
        )
    now = view(world)
    assert now.command is not None
    assert (now.command.author, now.command.state) == ("a signal (SIGUSR1) on rank 1", "saving")
    assert "a signal (SIGUSR1) on rank 1 has asked" in command(world, "stop").text
    assert orders(world.core) == {}


def test_what_was_asked_for_outlives_a_restart_of_the_hub() -> None:
    """Rows and ends are part of the state; the log is read back, and nothing is logged twice."""
    world = ready()
    paused(world)
    saved = world.state.controls.dump()
    fresh = type(world.state.controls)()
    fresh.load(saved)
    assert fresh.dump() == saved
    assert fresh.held == {0, 1}
    again = Incidents(world.core.know.incidents.shown)
    assert list(again.commands) == list(world.core.know.incidents.commands)
    entry = next(iter(again.commands.values()))
    assert again.commanded(entry) == []


def test_a_request_ends_with_the_attempt() -> None:
    """The ranks that were asked are no more."""
    world = ready()
    command(world, "pause")
    world.new_attempt().advance(1.0)
    assert view(world).commands[0].state == "given-up"
    assert "started again" in view(world).commands[0].text


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("end", ["started again", "started again at once", "run over"])
def test_a_pause_that_took_effect_says_so_however_it_ends(end: str, resumed: bool) -> None:
    """Nothing was given up: the ranks stood still until they were no more. What was asked for in
    it, and had not come to anything, was given up."""
    world = ready(saver=True)
    number = paused(world, saver=True)
    world.tick()
    last = "resume" if resumed else "checkpoint"
    assert command(world, last, author="bob@laptop").accepted
    world.core.launcher_lives = lambda: end != "run over"
    if end == "started again at once":
        world.new_attempt().advance(1.0)
    else:
        for rank in world.ranks:
            world.kill(rank)
        world.advance(1.0 if end == "started again" else LAST_WORDS_S + 1.0)
        if end == "started again":
            world.new_attempt().advance(1.0)
    told = {one.command: one for one in view(world).commands}
    until = "all ranks had ended" if end == "run over" else "the ranks were started again"
    assert (told["pause"].request, told["pause"].state) == (number, "done")
    assert (told["pause"].step, told["pause"].text) == (4, f"paused after step 4, until {until}")
    assert told[last].state == ("done" if resumed else "given-up")
    assert f"pause by ada@laptop is done: paused after step 4, until {until}" in log(world)


@pytest.mark.parametrize(("name", "saved"), [("stop", 0), ("stop", 2), ("checkpoint-and-stop", 5)])
def test_a_run_that_an_operator_ended_says_by_whom_and_what_of_it_is_kept(
    name: str, saved: int
) -> None:
    """In good order, and yet not complete: nobody must take it for that."""
    world = ready(saver=True)
    for _ in range(4):
        world.step()
    if saved:
        world.state.saves.last = Outcome(saved, 0, True, 0.0, "/step", "", -1, "", 1)
    number = command(world, name).reference
    of = {"command": name, "author": "ada@laptop", "request": number, "boundary": 5}
    for rank in world.ranks:
        controlled(world, rank, "done", stop_step=5, text="training stops after step 5", **of)
    world.tick()
    assert world.status().stopped == ""
    for rank in world.ranks:
        world.finish(rank)
    world.run_end()
    world.advance(1.0)
    kept = {0: "nothing was saved", 2: "the 3 steps since checkpoint 2 are not saved"}
    status = world.status()
    assert status.state == "finished"
    assert status.stopped == (
        f"by ada@laptop after step 5: {kept.get(saved, 'that step is saved')}"
    )


@pytest.mark.parametrize("ending", ["goodbye", "launcher"])
def test_what_came_of_a_request_may_be_told_after_the_end(ending: str) -> None:
    """The last word of a rank may be behind its goodbye, or its launcher's word before both."""
    world = ready(1, saver=True).step()
    number = command(world, "checkpoint-and-stop").reference
    of = {"command": "checkpoint-and-stop", "request": number, "boundary": 4, "saver": True}
    controlled(world, 0, "saving", **of)
    world.tick()
    if ending == "goodbye":
        world.goodbye(0)
    else:
        world.run_end(0)
    world.tick()
    assert world.status().state == "finished"
    now = view(world)
    assert now.command is not None
    assert now.command.request == number
    text = "saved, and training stops after step 4"
    controlled(world, 0, "done", text=text, stop_step=4, **of)
    world.tick()
    assert [(one.state, one.text) for one in view(world).commands] == [("done", text)]


@pytest.mark.parametrize("ok", [True, False])
def test_of_a_request_whose_end_nobody_told_the_save_is_known(ok: bool) -> None:
    """A rank that was ended before its last word had told what came of the save."""
    world = ready(1, saver=True).step()
    number = command(world, "checkpoint-and-stop").reference
    of = {"command": "checkpoint-and-stop", "request": number, "boundary": 4, "saver": True}
    controlled(world, 0, "saving", **of)
    phase, text = ("done", "checkpoint of step 4 is complete") if ok else ("failed", "disk full")
    path = "/c/step-00000004" if ok else ""
    of_save = {"step": 4, "request": number, "phase_t_s": world.now_s, "path": path}
    world.from_rank(0, m.Saving, phase=phase, text=text, **of_save)
    world.goodbye(0)
    world.advance(LAST_WORDS_S + 1.0)
    (told,) = view(world).commands
    assert (told.state, told.step) == (("done", 4) if ok else ("given-up", 4))
    assert text in told.text
