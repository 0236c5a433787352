"""Loops that are not plain: recomputation, closures, compiled models, a forward that raises."""

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from rankscope.protocol.messages import Phase
from support.loops import sgd, small, train
from support.observed import observed


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_computes_anew_within_backward(reentrant: bool) -> None:
    """Activation checkpointing of the whole model adds no microbatch and no forward time."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        x = torch.ones(2, 8, requires_grad=True)
        y: Any = checkpoint(model, x, use_reentrant=reentrant)
        loss = y.pow(2).sum()
        loss.backward()
        optimizer.step()
    (step,) = seen.steps
    assert step.microbatches == 1
    assert step.loss == pytest.approx(loss.item())


def test_a_forward_that_raises_leaves_no_phase_behind() -> None:
    """The user's exception passes untouched, and the next forward is forward again."""
    model = small()
    with observed((model, sgd(model))) as seen:
        with pytest.raises(RuntimeError, match="shapes"):
            model(torch.ones(1, 3))
        assert seen.read().phases.snapshot.phase is Phase.OTHER
        with pytest.raises(RuntimeError, match="grad"):
            small()(torch.ones(1, 8)).backward()
        assert seen.read().phases.snapshot.phase is Phase.OTHER
    assert seen.faults == []


def test_lbfgs_runs_its_closure_inside_the_optimizer() -> None:
    """A closure's forwards and backwards are seen, and the step is one."""
    model = small()
    optimizer: Any = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss: Any = model(torch.ones(2, 8)).pow(2).sum()
        loss.backward()
        return loss

    with observed((model, optimizer)) as seen:
        optimizer.step(closure)
    (step,) = seen.steps
    assert step.microbatches > 1
    assert step.forward_s > 0


def test_a_compiled_model_is_watched_and_its_graph_not_broken() -> None:
    """torch.compile with fullgraph works before and after attaching, and forwards are seen."""
    for compiled_first in (True, False):
        torch._dynamo.reset()
        model = small()
        optimizer = sgd(model)

        def compiled(model: Any) -> Any:
            return torch.compile(model, backend="eager", fullgraph=True)

        target = compiled(model) if compiled_first else model
        with observed((target, optimizer)) as seen:
            run = target if compiled_first else compiled(model)
            train(run, optimizer, 3)
        assert seen.faults == []
        assert [step.microbatches for step in seen.steps] == [1, 1, 1]
        # Compiled around the hooks, the first forward cannot be told from what was before it.
        assert all(step.forward_s > 0 for step in seen.steps[0 if compiled_first else 1 :])


def test_a_model_compiled_in_place_still_trains() -> None:
    """model.compile() has a graph of its own inside the call, which is timed as ever."""

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.inner(x)
            return y

    torch._dynamo.reset()
    model = Wrapped()
    model.compile(backend="eager", fullgraph=True)
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        train(model, optimizer, 3)
    assert seen.faults == []
    assert [step.microbatches for step in seen.steps] == [1, 1, 1]
    assert all(step.forward_s > 0 for step in seen.steps)
