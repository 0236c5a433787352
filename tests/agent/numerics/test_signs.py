"""The collector of signs, and their way into messages."""

from typing import Any

import torch

from rankscope.agent.signs import MAX_NAMES, Signs
from rankscope.protocol.messages import Sign, Stage
from rankscope.protocol.messages import Signs as Message
from support.observed import observed


class Told:
    def __init__(self) -> None:
        self.messages: list[tuple[tuple[Sign, ...], tuple[Stage, ...]]] = []
        self.signs = Signs(lambda signs, looked: self.messages.append((signs, looked)))


def test_a_sign_is_published_at_once_with_the_stages_looked_at() -> None:
    """A loop that raises right after it leaves what was seen."""
    told = Told()
    told.signs.looked(Stage.LOSS)
    told.signs.add(Stage.GRADIENT, "a.weight", microbatch=2, count=1)
    told.signs.publish()
    ((signs, looked),) = told.messages
    assert signs == (Sign(Stage.GRADIENT, 0, 2, "a.weight", "nan", 1),)
    assert looked == (Stage.LOSS, Stage.GRADIENT)
    assert told.signs.bad


def test_a_clean_step_says_nothing() -> None:
    """What was only looked at costs no message."""
    told = Told()
    told.signs.looked(Stage.LOSS)
    told.signs.publish()
    told.signs.end_step()
    assert told.messages == []


def test_many_names_of_a_stage_are_counted_instead() -> None:
    """A model of which everything is NaN fits into one short message."""
    told = Told()
    for index in range(1000):
        told.signs.add(Stage.REDUCED, f"p{index}")
    told.signs.publish()
    ((signs, _),) = told.messages
    assert len(signs) == MAX_NAMES
    assert signs[-1].others == 1000 - MAX_NAMES
    assert not told.signs.wanted(Stage.REDUCED)


def test_what_goes_on_is_said_shortly_in_each_further_step() -> None:
    """A NaN that stays is one name a step from its second step on."""
    told = Told()
    for _ in range(2):
        told.signs.add(Stage.GRADIENT, "a", microbatch=1)
        told.signs.add(Stage.GRADIENT, "b", microbatch=1)
        told.signs.end_step()
    first, second = told.messages
    assert [sign.name for sign in first[0]] == ["a", "b"]
    assert [(sign.name, sign.others) for sign in second[0]] == [("a", 1)]


def test_steps_since_the_last_sign_are_counted() -> None:
    """Costly looks are armed by it."""
    told = Told()
    assert told.signs.steps_since == -1
    told.signs.add(Stage.LOSS)
    told.signs.end_step()
    told.signs.end_step()
    told.signs.end_step()
    assert (told.signs.steps_since, told.signs.bad) == (2, False)


def test_signs_carry_the_step_in_work() -> None:
    """Of step 2, in a plain loop and in one that calls ``end_step``."""
    for full in (False, True):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with observed((model, optimizer)) as seen:
            for step in (1, 2):
                model(torch.ones(1, 2)).sum().backward()
                if step == 2:
                    seen.observer.signs.add(Stage.LOSS, value="inf")
                optimizer.step()
                if full:
                    seen.end_step(None, None)
            sent = [fields for kind, fields in seen.urgent if kind is Message]
        assert [(fields["step"], fields["signs"][0].step) for fields in sent] == [(2, 2)]


def test_further_fields_of_a_step_reach_its_record() -> None:
    """Also those noted at the optimizer's step that an ``end_step`` then extends."""
    model: Any = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            seen.observer.more["loss_scale"] = 8.0
            optimizer.step()
            seen.end_step(None, None)
        assert [record.loss_scale for record in seen.steps] == [8.0, 8.0]
