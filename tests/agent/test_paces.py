"""How often something is looked at whose cost must stay within a share of the step's time."""

import gc
import itertools

import torch

from rankscope.agent.probes.pace import MAX_EVERY, Pace
from support.observed import observed


def settled(cost_s: float, step_s: float, *, least_s: float = 0.0, steps: int = 4000) -> int:
    pace = Pace(share=0.005, free_s=0.0003, least_s=least_s)
    for step in range(1, steps):
        if pace.due(step):
            pace.took(step, step * step_s, cost_s)
    return pace.every


def test_what_is_cheap_is_done_at_every_step() -> None:
    """Below its share of a long step, or below what is free, it is not spared."""
    assert settled(0.004, 1.0) == 1
    assert settled(0.0003, 0.001) == 1


def test_what_is_dear_comes_seldom_and_within_its_share() -> None:
    """At a power of two of steps, as often as the share allows."""
    for cost_s, step_s in itertools.product((0.001, 0.01, 0.1), (0.01, 0.1, 1.0)):
        every = settled(cost_s, step_s)
        assert every == 1 or cost_s <= 0.0100001 * step_s * every or cost_s <= 0.0003 * every
        assert every & (every - 1) == 0
    assert settled(100.0, 0.001) == MAX_EVERY


def test_ranks_with_other_costs_share_steps() -> None:
    """The seldomer of two intervals is a multiple of the other."""
    found = sorted(settled(cost_s, 0.1) for cost_s in (0.0001, 0.0007, 0.003, 0.02))
    assert all(other % one == 0 for one, other in itertools.pairwise(found))


def test_a_large_world_looks_seldom() -> None:
    """Not more often than the hub can take, however cheap it is."""
    assert settled(0.00001, 0.01, least_s=1.0) * 0.01 >= 1.0


def test_one_hiccup_changes_nothing() -> None:
    """A single slow look among quick ones, or a pause between two steps, is no reason."""
    pace = Pace(share=0.005, free_s=0.0003)
    for step in range(1, 30):
        pace.took(step, step * 0.1 + (5.0 if step > 15 else 0.0), 1.0 if step == 20 else 0.0001)
    assert pace.every == 1


def test_a_rest_is_no_steps_time() -> None:
    """What is dear stays as seldom as it was, however long nothing was observed between looks."""
    pace = Pace(share=0.005, free_s=0.0003)
    now = 0.0
    for step in range(1, 400):
        now += 0.1
        if step % 9 == 0:
            pace.rest()
            now += 5.0
        if pace.due(step):
            pace.took(step, now, 0.0019)
    assert pace.every == settled(0.0019, 0.1) == 4


def test_every_pace_rests_while_nothing_is_observed() -> None:
    """Whatever probe keeps it."""
    others = {id(one) for one in gc.get_objects() if type(one) is Pace}
    model = torch.nn.Linear(2, 2)
    with observed((model, torch.optim.SGD(model.parameters(), lr=0.1))) as seen:
        paces = [one for one in gc.get_objects() if type(one) is Pace and id(one) not in others]
        assert len(paces) >= 5
        for pace in paces:
            pace._last = (1, 0.0)
        seen.observer.uninstall()
        assert [pace for pace in paces if pace._last is not None] == []
        seen.observer.install()
