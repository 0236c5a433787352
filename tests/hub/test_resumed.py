"""A run that goes on from a checkpoint: it is known from what, and that is what to go back to."""

import msgspec
import pytest

from rankscope.hub.state.saves import Saves
from rankscope.protocol import messages as m
from rankscope.protocol import resumed, shapes
from support.world import World

PATH = "/c/step-00000012"
FROM = resumed.Resumed(12, PATH)


def gone_on(facts: dict[str, str], start_step: int = 12, world: World | None = None) -> World:
    """Two ranks of a run that goes on after step ``start_step``."""
    found = World(ranks=2, hello=False) if world is None else world
    for rank in found.ranks.values():
        found.hello(rank.rank, facts=facts, start_step=start_step)
        rank.step = start_step
    return found.step().advance(1.0)


def saved(world: World, step: int, notfinite: str = "") -> None:
    t_s = world.now_s + world.ranks[0].clock_s
    told = {"step": step, "request": 0, "phase_t_s": t_s, "path": f"/c/step-{step:08d}"}
    world.from_rank(0, m.Saving, phase="done", notfinite=notfinite, **told)
    world.advance(0.5)


def newest(world: World) -> shapes.Checkpoint | None:
    """The same in every view that tells it."""
    whole, short, view = world.status(), world.overview(), world.view("checkpoints")
    assert whole.last_checkpoint == short.last_checkpoint == view.last
    assert whole.resumed == short.resumed == view.resumed
    return whole.last_checkpoint


def test_what_the_run_was_resumed_from_is_the_newest_until_one_is_saved() -> None:
    """In every view, and after the hub was started again."""
    world = gone_on(resumed.told(FROM))
    assert newest(world) == shapes.Checkpoint(12, PATH, True, resumed=True)
    assert world.status().resumed == shapes.Resumed(12, PATH)
    again = Saves()
    again.load(msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.saves.dump())))
    assert again.dump() == world.state.saves.dump()
    saved(world, 13)
    assert newest(world) == shapes.Checkpoint(13, "/c/step-00000013", True)
    assert world.status().resumed == shapes.Resumed(12, PATH)


def test_ranks_that_began_at_step_1_were_not_resumed() -> None:
    """Nothing is said of it, and there is no checkpoint."""
    world = World(ranks=2).step()
    assert newest(world) is None
    assert world.status().resumed is None


@pytest.mark.parametrize(
    "facts",
    [
        *({}, {resumed.PATH: PATH}, {resumed.PATH: "", resumed.STEP: "12"}),
        *({resumed.PATH: PATH, resumed.STEP: step} for step in ("-1", "x", "", "1" * 40, "²")),
    ],
)
def test_a_loop_with_checkpoints_of_its_own_says_only_after_which_step(
    facts: dict[str, str],
) -> None:
    """And what cannot be read is taken for that."""
    world = gone_on(facts)
    assert newest(world) is None
    assert world.status().resumed == shapes.Resumed(12, "")


def test_a_restart_that_went_on_from_an_older_one_goes_back_to_that_one() -> None:
    """The newest was passed over: what is lost is counted from where the ranks did begin."""
    world = World(ranks=2).step()
    saved(world, 8)
    saved(world, 20)
    world.new_attempt()
    gone_on(resumed.told(resumed.Resumed(8, "/c/step-00000008")), 8, world)
    assert newest(world) == shapes.Checkpoint(8, "/c/step-00000008", True, resumed=True)
    saved(world, 9)
    assert newest(world) == shapes.Checkpoint(9, "/c/step-00000009", True)


def test_a_restart_from_the_newest_has_saved_it_itself() -> None:
    """It is the run's own; and a further attempt that begins anew was not resumed."""
    world = World(ranks=2).step()
    saved(world, 20)
    world.new_attempt()
    gone_on(resumed.told(resumed.Resumed(20, "/c/step-00000020")), 20, world)
    assert newest(world) == shapes.Checkpoint(20, "/c/step-00000020", True)
    world.new_attempt().step()
    assert world.status().resumed is None


@pytest.mark.parametrize("known", [True, False])
def test_what_to_go_on_from_is_what_the_run_went_on_from(known: bool) -> None:
    """Of parameters that are spoilt, and of a save that fails; a loop's own checkpoint, too."""
    world = gone_on(resumed.told(FROM) if known else {})
    sign = m.Sign(stage=m.Stage.UPDATED, step=14, microbatch=0, name="w", value="nan", count=1)
    world.from_rank(1, m.Signs, step=14, signs=(sign,), looked=(m.Stage.UPDATED,))
    t_s = world.now_s + world.ranks[0].clock_s
    world.from_rank(0, m.Saving, step=13, request=0, phase="failed", phase_t_s=t_s, text="full")
    world.step().advance(2.0)
    told = {one.kind: one.evidence for one in world.findings()}
    assert any(
        text.endswith("go on from checkpoint 12")
        for kind, evidence in told.items()
        for text in evidence
        if kind.startswith("nonfinite")
    ), told
    none = "there is no complete checkpoint of this run yet"
    assert told["checkpoint-failed"] == [
        none
        if not known
        else f"none has been saved since the run was resumed from that of step 12: {PATH}"
    ]


HOLDS = "it holds NaN: w"


def test_a_checkpoint_that_holds_nan_is_the_newest_and_says_so() -> None:
    """With the newest that does not, of this run or what it was resumed from; and so do the list
    of saves and the hub after it was started again."""
    world = gone_on(resumed.told(FROM))
    saved(world, 13, HOLDS)
    found = newest(world)
    assert found is not None
    assert (found.step, found.notfinite, found.finite_step) == (13, HOLDS, 12)
    assert world.view("checkpoints").outcomes[0].notfinite == HOLDS
    saved(world, 14)
    saved(world, 15, HOLDS)
    found = newest(world)
    assert found is not None
    assert (found.step, found.finite_step) == (15, 14)
    again = Saves()
    again.load(msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.saves.dump())))
    assert again.dump() == world.state.saves.dump()


def test_what_was_resumed_from_one_that_holds_nan_says_so() -> None:
    """It was named, or nobody would have gone on from it."""
    world = gone_on(resumed.told(FROM._replace(notfinite=HOLDS)))
    found = newest(world)
    assert found is not None
    assert (found.notfinite, found.finite_step) == (HOLDS, None)
