"""What the probes see of a plain loop; in this process, with no thread."""

import math
import threading
from typing import Any

import pytest
import torch

from rankscope.protocol.messages import Phase, StepRecord
from support.loops import sgd, small, train
from support.observed import observed


def test_the_plain_loop_gives_steps_with_everything_in_them() -> None:
    """Phases, microbatches, loss and gradient norm are found from hooks alone."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        losses = train(model, optimizer, steps=3, microbatches=2)
        norm = math.sqrt(
            sum(float(p.grad.pow(2).sum()) for p in model.parameters() if p.grad is not None)
        )
    steps = seen.steps
    assert [step.step for step in steps] == [1, 2, 3]
    assert [step.loss for step in steps] == pytest.approx(losses)
    assert all(step.microbatches == 2 for step in steps)
    assert all(min(step.forward_s, step.backward_s, step.optimizer_s) > 0 for step in steps)
    assert steps[-1].grad_norm == pytest.approx(norm, rel=1e-5)
    assert not steps[-1].grad_norm_sharded
    for step in steps:
        parts = step.data_s + step.forward_s + step.backward_s + step.optimizer_s + step.other_s
        assert parts == pytest.approx(step.step_s)


def test_end_step_takes_over_from_the_optimizer() -> None:
    """A loop that calls end_step has as many steps as calls, from the first one on."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        for _ in range(3):
            losses = train(model, optimizer, steps=1)
            if seen.digest.completed == 0:
                seen.read()  # the sending thread looks between the optimizer's step and end_step
            seen.end_step(losses[0] + 1, 32)
    steps = {step.step: step for step in seen.steps}
    assert list(steps) == [1, 2, 3]
    assert steps[3].loss == pytest.approx(losses[0] + 1)
    assert {step.tokens for step in steps.values()} == {32}
    assert seen.digest.boundary
    assert seen.outbox.dropped == 0


def test_end_step_counts_where_the_optimizer_is_skipped() -> None:
    """A guard that skips the update does not hide the step."""
    model = small()
    with observed((model, sgd(model))) as seen:
        for _ in range(2):
            model(torch.ones(1, 8)).sum().backward()
            seen.end_step(None, None)
    assert [step.step for step in seen.steps] == [1, 2]


def test_a_scalar_output_is_the_loss_even_when_backward_gets_it_scaled() -> None:
    """What a GradScaler or an accumulation count multiplies is seen unscaled."""

    class Scored(torch.nn.Module):
        def __init__(self, shape: Any) -> None:
            super().__init__()
            self.inner = small()
            self.shape = shape

        def forward(self, x: torch.Tensor) -> Any:
            y = self.inner(x)
            return self.shape(y, y.pow(2).mean())

    shapes: list[tuple[Any, Any]] = [
        (lambda _, loss: loss, lambda output: output),
        (lambda y, loss: (y, loss), lambda output: output[1]),
        (lambda y, loss: {"logits": y, "loss": loss}, lambda output: output["loss"]),
    ]
    for shape, loss_of in shapes:
        model = Scored(shape)
        optimizer = sgd(model)
        with observed((model, optimizer)) as seen:
            loss = loss_of(model(torch.ones(2, 8)))
            (loss * 1024).backward()
            optimizer.step()
        assert seen.steps[0].loss == pytest.approx(loss.item())


def test_clipping_gives_the_norm_before_it() -> None:
    """The norm is the one clip_grad_norm_ returned, under both of its names."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        for clip in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad.clip_grad_norm_):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).pow(2).sum().backward()
            norm = clip(model.parameters(), 1e-3)
            optimizer.step()
            assert seen.steps[-1].grad_norm == pytest.approx(float(norm))
            assert float(norm) > 1e-3


def test_evaluation_is_no_microbatch() -> None:
    """Forwards under no_grad, in eval mode or not, belong to no step."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        train(model, optimizer, steps=1)
        model.eval()
        with torch.no_grad():
            model(torch.ones(1, 8))
            model(torch.ones(1, 8))
        model.train()
        train(model, optimizer, steps=1)
    assert [step.microbatches for step in seen.steps] == [1, 1]


def test_two_models_and_two_optimizers_in_one_process() -> None:
    """Steps are those of the first optimizer, microbatches those of the first model."""
    generator, critic = torch.nn.Linear(4, 8), small()
    first, second = sgd(critic), sgd(generator)
    with observed((critic, first), (generator, second)) as seen:
        for _ in range(3):
            first.zero_grad()
            loss: Any = critic(torch.randn(2, 8)) - critic(generator(torch.randn(2, 4)))
            loss.mean().backward()
            first.step()
            second.zero_grad()
            critic(generator(torch.randn(2, 4))).mean().backward()
            second.step()
    assert [step.step for step in seen.steps] == [1, 2, 3]
    assert [step.microbatches for step in seen.steps] == [2, 3, 3]


def test_torchs_loader_is_timed_without_being_asked() -> None:
    """A plain loop over a DataLoader has data time; the batches are the same."""
    data = torch.arange(12.0).reshape(6, 2)
    model = torch.nn.Linear(2, 1)
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        loader: Any = torch.utils.data.DataLoader(data, batch_size=2)  # type: ignore[arg-type]
        got = []
        for x in loader:
            got.append(x)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    assert torch.equal(torch.cat(got), data)
    assert all(step.data_s > 0 for step in seen.steps)


def test_another_threads_work_is_not_the_loops() -> None:
    """A forward in a thread of its own is no microbatch."""
    model = small()
    with observed((model, sgd(model))) as seen:
        thread = threading.Thread(target=lambda: model(torch.ones(1, 8)))
        thread.start()
        thread.join()
        assert seen.read().phases.snapshot.phase is Phase.STARTING


def test_training_in_a_thread_of_its_own_is_seen() -> None:
    """Attached on the main thread, trained on another: the steps are there all the same."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        thread = threading.Thread(target=train, args=(model, optimizer, 3))
        thread.start()
        thread.join()
    assert [step.step for step in seen.steps] == [1, 2, 3]
    assert seen.steps[-1].forward_s > 0


def test_records_of_the_wire_are_what_comes_out() -> None:
    """Everything noted ends in the contract's own types."""
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        train(model, optimizer, 1)
    assert all(isinstance(step, StepRecord) for step in seen.steps)
    overhead_s = seen.digest.overhead_s()
    assert overhead_s is not None
    assert overhead_s > 0
