"""What is said of a run's end when its messages come in any order that their connections allow."""

import pytest

from rankscope.protocol import shapes
from support.endings import ENDINGS, Ending, hear, orders
from support.world import World

LATE_S = 0.4
CHANCES = 2

Verdict = tuple[str, str, list[int]] | None
Told = tuple[str, str, int | None]


def verdict(status: shapes.Status) -> Verdict:
    found = status.verdict
    return None if found is None else (found.kind, found.severity, found.ranks)


def logged(world: World) -> set[tuple[str, str]]:
    """What has opened and closed, whatever the step was thought to be."""
    return {(one.id.rpartition("/")[0], one.event) for one in world.log()}


def came_of(world: World) -> list[Told]:
    """What came of commands."""
    commands: list[shapes.Command] = world.view("checkpoints").commands
    return sorted((one.command, one.state, one.step) for one in commands)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_final_is_said_that_is_not_true(ending: str, nodes: int) -> None:
    """Whoever asks meanwhile is told nothing of the end that is taken back, and the last word is
    the same as when all came at once."""
    true: tuple[object, ...] | None = None
    for order in orders(CHANCES, LATE_S, nodes):
        world = Ending(2, per_node=2 // nodes)
        ENDINGS[ending](world)
        said, commands = [], []
        for status in hear(world, order):
            said.append(status)
            commands.append(came_of(world))
        end = said[-1]
        last = (
            *(end.state, end.exit_code, end.step, end.last_checkpoint, verdict(end)),
            *(commands[-1], logged(world)),
        )
        true = true or last
        assert last == true
        for status in said:
            if status.state in ("finished", "failed"):
                assert status.state == end.state
            if status.verdict is not None and status.verdict.severity == "critical":
                assert verdict(status) == verdict(end), status.verdict.headline
        assert all(one in commands[-1] for some in commands for one in some)


@pytest.mark.parametrize(("code", "state"), [(0, "failed"), (1, "failed"), (3, "failed")])
def test_a_rank_that_left_without_a_word_has_never_finished(code: int, state: str) -> None:
    """Its goodbye may come; until then the run goes on, or has failed."""
    world = World(1)
    for _ in range(3):
        world.step()
    world.exits(0, code)
    for _ in range(12):
        assert world.status().state in ("running", state)
        world.now_s += 0.1
    assert world.status().state == state
    assert world.finding("rank-dead").ranks == [0]


def test_a_pause_of_observing_may_be_heard_of_after_the_end_of_its_process() -> None:
    """Two connections, two speeds: a run that has ended does not go on for ever."""
    world = World(1)
    world.step()
    world.exits(0, 0)
    world.goodbye(0, "paused")
    assert world.status().state == "finished"


def test_a_run_whose_last_words_were_not_heard_may_have_gone_on_longer() -> None:
    """No hub looked when it ended: the step that is known is the last that was heard of."""
    world = World(2)
    world.step()
    for rank in (0, 1):
        world.exits(rank, 0, finished=True)
    world.run_end(0)
    status = world.status()
    assert status.state == "finished"
    assert status.ending == "the last words of ranks 0 and 1 were not heard"
    world.goodbye(0).goodbye(1)
    assert world.status().ending == ""
