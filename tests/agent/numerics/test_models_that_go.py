"""Models that are watched, trained and let go of, one after the other, in one process."""

import gc
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients.probe import Gradients
from support.observed import Observed, observed

WIDE = 192
"""A layer of WIDE × WIDE is large."""


def make(kind: str = "plain") -> tuple[Any, Any]:
    layers = torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh(), torch.nn.Linear(WIDE, 4)
    model: torch.nn.Module = torch.nn.Sequential(*layers)
    if kind == "own class":

        class Own(torch.nn.Sequential):
            pass

        model = Own(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model: Any, optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        model(torch.ones(2, WIDE)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def objects() -> Counter[str]:
    """How many objects of each type there are."""
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


@pytest.mark.parametrize(("kind", "kept"), [("plain", True), ("own class", False)])
def test_models_that_are_gone_leave_nothing(kind: str, kept: bool) -> None:
    """However many come and go, nothing of the agent's grows: no hook, note, reference or name."""
    models = 6
    with observed() as seen:
        first = make()
        if kept:
            seen.observer.watch(*first)

        def come_and_go() -> Counter[str]:
            for _ in range(models):
                model, optimizer = make(kind)
                seen.observer.watch(model, optimizer)
                train(model, optimizer)
                if kept:
                    train(*first)
                del model, optimizer
                gc.collect(1)
                seen.observer.noted.clear()
            return objects()

        come_and_go()
        counts = [come_and_go() for _ in range(3)]
        # What grows each time: other threads of this process may make something in between.
        grown = (counts[1] - counts[0]) & (counts[2] - counts[1])
        assert {kind: more for kind, more in grown.items() if more >= models // 2} == {}
        assert seen.faults == []


def test_a_parameter_that_outlives_its_model_is_looked_at_as_the_next_one_s() -> None:
    """A wrapper that is made anew, say: what was placed for the one before is in nobody's way."""
    inner, optimizer = make()
    with observed() as seen:
        for _ in range(3):
            wrapper = torch.nn.Sequential(inner)
            seen.observer.watch(wrapper, optimizer)
            seen.read().events.clear()
            train(wrapper, optimizer)
            assert norms(seen) == 2
            for parameter in inner.parameters():
                assert len(parameter._post_accumulate_grad_hooks) == 1
            del wrapper
            gc.collect()
        probe = seen.observer.gradients
        assert isinstance(probe, Gradients)
        assert len(probe.places) == 1
        assert seen.faults == []


def test_what_two_models_share_stays_looked_at_when_the_first_is_gone() -> None:
    """At the next forward after it is known that the first is."""
    inner, optimizer = make()
    with observed() as seen:
        wrapper = torch.nn.Sequential(inner)
        seen.observer.watch(wrapper, optimizer)
        seen.observer.watch(inner, None)
        train(wrapper, optimizer)
        del wrapper
        gc.collect()
        other = make()
        seen.observer.watch(*other)
        seen.read().events.clear()
        train(inner, optimizer)
        assert norms(seen) == 2


def norms(seen: Observed) -> int:
    """In how many steps the norm of this rank's own gradients was taken."""
    return sum(record.local_norm is not None for record in list(seen.steps)[-2:])


def weights(watched: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    first = make()
    kept = list(first[0].parameters())
    with observed() if watched else nullcontext() as seen:
        for _ in range(4):
            pair = make()
            if seen is not None:
                seen.observer.watch(*first)
                seen.observer.watch(*pair)
            train(*pair)
            train(*first)
            kept += pair[0].parameters()
            del pair
            gc.collect()
    return kept


def test_models_that_come_and_go_are_trained_to_the_same_bits() -> None:
    """Watched or not."""
    for one, other in zip(weights(True), weights(False), strict=True):
        assert torch.equal(one, other)
