"""Saves as the hub sees them: requests on their way to the ranks, outcomes, and the finding."""

from typing import Any

import msgspec
import pytest

from rankscope.protocol import codec, shapes
from rankscope.protocol import messages as m
from support.control import command, controlled, orders
from support.world import World


def saving(world: World, rank: int, phase: str = "idle", **fields: Any) -> None:
    told: dict[str, Any] = {"step": 0, "request": 0, "phase": phase, "phase_t_s": 0.0}
    told["phase_t_s"] = world.now_s + world.ranks[rank].clock_s
    world.from_rank(rank, m.Saving, **(told | fields))


def ask(world: World) -> m.CommandReply:
    """An operator asks for a checkpoint."""
    return command(world, "checkpoint")


def view(world: World) -> shapes.CheckpointsView:
    frame = codec.encode(m.ViewRequest(2, "checkpoints"))
    world.core.receive(b"client", "viewer", frame, world.now_s)
    reply = codec.decode(world.core.outbox[-1][1], 1 << 24)
    assert isinstance(reply, m.ViewReply)
    return msgspec.msgpack.decode(reply.body, type=shapes.CheckpointsView)


def failure(world: World) -> shapes.Finding:
    """The finding beside the one on the rank itself."""
    return next(one for one in world.findings() if one.kind == "checkpoint-failed")


def ready(ranks: int = 3) -> World:
    world = World(ranks=ranks)
    for rank in range(ranks):
        saving(world, rank)
        controlled(world, rank, saver=True)
    return world.step()


def test_a_request_goes_to_all_ranks_until_each_has_heard_of_it() -> None:
    """A second one is told that there is one; and it ends with its outcome."""
    world = ready()
    world.core.outbox.clear()
    reply = ask(world)
    assert reply.accepted
    told = orders(world.core)
    assert sorted(told) == ["rank 0", "rank 1", "rank 2"]
    assert {order.request for order in told.values()} == {reply.reference}
    assert not ask(world).accepted
    for rank in (0, 2):
        controlled(world, rank, "waiting", request=reply.reference, saver=True)
    world.core.outbox.clear()
    world.advance(2.0)
    assert sorted(orders(world.core)) == ["rank 1"]
    assert view(world).pending == "pending: rank 1 has not heard of it"
    for rank in range(3):
        controlled(world, rank, "done", request=reply.reference, boundary=4, saver=True)
    saving(world, 1, "writing", step=4, request=reply.reference, total_bytes=100, done_bytes=10)
    world.advance(0.5)
    now = view(world)
    assert (now.pending, now.slowest, now.ranks[0].phase) == ("saving", 1, "writing")
    saving(world, 0, "done", step=4, request=reply.reference, path="/c/step-00000004")
    world.advance(2.0)
    now = view(world)
    assert (now.pending, now.request) == ("", 0)
    assert (now.outcomes[0].ok, now.outcomes[0].request) == (True, reply.reference)
    assert now.last == shapes.Checkpoint(step=4, path="/c/step-00000004", verified=True)
    assert orders(world.core) == {}


def test_a_rank_in_evaluation_is_named_while_a_request_waits_for_it() -> None:
    """Who must be waited for, and in what it is."""
    world = ready()
    reply = ask(world)
    for rank in range(3):
        controlled(world, rank, "waiting", request=reply.reference, saver=True)
    world.beat(2, expecting="evaluation")
    world.tick()
    assert view(world).pending == "pending: rank 2 is in evaluation"


def test_a_failed_save_is_found_and_closes_with_the_next_good_one() -> None:
    """With the rank that failed, its phase, and the checkpoint that is still the newest."""
    world = ready()
    saving(world, 0, "done", step=5, path="/c/step-00000005")
    text = "rank 1, writing: No space left on device"
    failed = {"step": 9, "text": text, "culprit": 1, "culprit_phase": "writing"}
    saving(world, 2, "failed", step=9, text="cancelled")
    saving(world, 1, "failed", **failed)
    world.advance(1.0)
    found = world.finding("checkpoint-failed")
    assert (found.ranks, found.step, found.where) == ([1], 9, {"phase": "writing"})
    assert found.severity == "warning"
    assert text in found.headline
    assert "of step 5" in found.evidence[0]
    saving(world, 0, "done", step=12, path="/c/step-00000012")
    world.advance(1.0)
    assert [one.kind for one in world.core.know.findings] == []


def test_a_rank_that_dies_in_a_save_is_to_blame_for_it_and_those_it_drags_along_are_not() -> None:
    """Also when nobody lives to tell what came of it."""
    world = ready()
    for rank in range(3):
        saving(world, rank, "writing", step=3, total_bytes=10)
    world.kill(1).advance(0.3)
    world.kill(0, 15).kill(2, 15).advance(1.0)
    found = failure(world)
    assert (found.ranks, found.step, found.where["phase"]) == ([1], 3, "writing")


@pytest.mark.parametrize("end", ["in order", "killed"])
def test_what_came_of_a_save_may_be_told_after_the_end_of_the_rank(end: str) -> None:
    """A rank's word that its save was complete, and its sentinel's of its end, come on two
    connections."""
    world = ready(1)
    saving(world, 0, "publishing", step=3)
    if end == "in order":
        world.exits(0, 0, finished=True)
        world.now_s += 1.0
    else:
        world.kill(0)
        world.now_s += 0.3
    world.tick()
    saving(world, 0, "done", step=3, path="/c/step-00000003")
    world.advance(3.0)
    assert "checkpoint-failed" not in {one.finding.kind for one in world.log()}


def test_a_rank_that_is_stopped_in_a_save_is_found_and_may_go_on() -> None:
    """The finding closes when it goes on."""
    world = ready()
    saving(world, 1, "writing", step=3)
    world.stop(1).advance(1.0)
    assert failure(world).ranks == [1]
    world.cont(1).advance(1.0)
    assert "checkpoint-failed" not in {one.kind for one in world.core.know.findings}


def test_what_is_known_of_saves_outlives_a_restart_of_the_hub_and_of_the_ranks() -> None:
    """The newest checkpoint is that of the run, not of an attempt."""
    world = ready()
    saving(world, 0, "done", step=5, path="/c/step-00000005")
    saved = world.state.saves.dump()
    fresh = type(world.state.saves)()
    fresh.load(saved)
    assert fresh.dump() == saved
    world.new_attempt().advance(1.0)
    assert view(world).last == shapes.Checkpoint(step=5, path="/c/step-00000005", verified=True)


def test_what_goes_wrong_is_logged_with_the_newest_checkpoint_of_then() -> None:
    """None where there was none; one that comes later changes no entry, nor its end."""
    world = ready()
    world.stop(2)
    world.advance(2.0)
    saving(world, 0, "done", step=5, path="/c/step-00000005")
    world.cont(2)
    world.step()
    world.advance(2.0, moving=True)
    world.kill(1)
    world.advance(1.0)
    saving(world, 0, "done", step=9, path="/c/step-00000009")
    world.new_attempt()
    world.advance(1.0)
    entries = world.view("incidents").incidents
    told = {
        (one.finding.kind, one.event): one.last_checkpoint and one.last_checkpoint.step
        for one in entries
        if one.finding.kind in ("rank-stopped", "rank-dead")
    }
    assert told == {
        ("rank-stopped", "opened"): None,
        ("rank-stopped", "closed"): None,
        ("rank-dead", "opened"): 5,
        ("rank-dead", "closed"): 5,
    }


def test_when_something_was_saved_stays_the_same_once_the_run_has_ended() -> None:
    """Whenever one asks: a save, a command, and one that was refused after the end."""
    world = ready(1)
    asked_s = world.now_s
    request = ask(world).reference
    world.advance(1.0)
    saved_s = world.now_s
    saving(world, 0, "done", step=1, request=request, path="/checkpoints/step-1")
    world.advance(3.0).finish(0).run_end(0)
    world.advance(2.0)
    refused_s = world.now_s
    assert not ask(world).accepted
    seen = set()
    for _ in range(4):
        found = view(world)
        assert found.as_of_s is not None
        ages_s = [one.age_s for one in found.outcomes] + [one.age_s for one in found.commands]
        seen.add(tuple(round(found.as_of_s - age_s, 3) for age_s in ages_s))
        world.advance(20.0)
    assert seen == {(saved_s, refused_s, asked_s)}
