"""What the probes see of real modules, optimizers and loaders; in this process, with no thread."""

import contextlib
import gc
import math
import signal
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from rankscope.agent import switch
from rankscope.agent.probes import catalogue
from rankscope.agent.probes.batches import timed
from rankscope.agent.probes.gradnorm import local_norm
from rankscope.protocol.messages import Phase, StepRecord
from support.observed import Observed, observed


def small() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def train(
    model: torch.nn.Module, optimizer: Any, steps: int = 3, microbatches: int = 1, scale: float = 1
) -> list[float]:
    """Plain training on random data that is the same every time; the mean losses of the steps."""
    data = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        step_losses = []
        for _ in range(microbatches):
            loss = model(torch.randn(4, 8, generator=data)).pow(2).mean() * scale
            loss.backward()
            step_losses.append(loss.item())
        optimizer.step()
        losses.append(sum(step_losses) / len(step_losses))
    return losses


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [value.clone() for value in model.state_dict().values()]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


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


def test_everything_is_taken_away_again() -> None:
    """After uninstall torch is as it was, and nothing more is noted."""
    before = (
        torch.autograd.backward,
        torch.nn.utils.clip_grad_norm_,
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        torch.utils.data.DataLoader.__iter__,
        sys.excepthook,
        threading.excepthook,
    )
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        assert torch.autograd.backward is not before[0]
        train(model, optimizer, 4)
        seen.read()
    train(model, optimizer)
    assert not seen.observer.noted
    after = (
        torch.autograd.backward,
        torch.nn.utils.clip_grad_norm_,
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        torch.utils.data.DataLoader.__iter__,
        sys.excepthook,
        threading.excepthook,
    )
    assert before == after
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_what_another_tool_wrapped_later_stays_wrapped() -> None:
    """A wrapper put around ours is left in place."""
    original = torch.autograd.backward
    with observed():
        ours = torch.autograd.backward

        def theirs(*args: Any, **kwargs: Any) -> None:
            ours(*args, **kwargs)

        torch.autograd.backward = theirs
    try:
        assert torch.autograd.backward is theirs
        small()(torch.ones(1, 8)).sum().backward()
    finally:
        torch.autograd.backward = original


def test_models_and_optimizers_are_not_kept_alive() -> None:
    """Watching holds on to nothing: a model that is dropped is freed."""
    model = small()
    optimizer = sgd(model)
    with observed() as seen:
        seen.observer.watch(model, optimizer)
        train(model, optimizer)
        gone = weakref.ref(model), weakref.ref(optimizer)
        del model, optimizer
        gc.collect()
        assert gone[0]() is None
        assert gone[1]() is None
        model = small()
        optimizer = sgd(model)
        seen.observer.watch(model, optimizer)
        train(model, optimizer, 2)
        assert len(seen.steps) == 5


FAULTS = [(probe, method) for probe in catalogue.PROBES for method in probe.guarded]


def exercise(seen: Observed, model: torch.nn.Module, optimizer: Any, given: bool) -> list[Any]:
    """Training that calls every guarded method of every probe."""
    further = torch.nn.Linear(8, 8)
    seen.observer.watch(further, sgd(further))
    loader: Any = torch.utils.data.DataLoader(torch.ones(8, 8), batch_size=2)  # type: ignore[arg-type]
    for index, x in enumerate(timed(loader, seen.observer.loader)):
        optimizer.zero_grad()
        model(further(x)).pow(2).mean().backward()
        if index % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if given:
            seen.end_step(1.0, 1)
    step = sgd(further)
    seen.observer.watch(None, step)
    step.step()
    group: Any = torch.distributed.ProcessGroup
    with contextlib.suppress(RuntimeError):  # a group without a backend
        group(0, 1).barrier()
    for probe, method in (("memory", "read"), ("facts", "read")):
        one: Any = seen.observer.probes[probe]
        seen.observer.ask(one, getattr(one, method))
    collectives: Any = seen.observer.collectives
    seen.observer.ask(collectives, collectives.read_groups)
    seen.observer.ask(collectives, collectives.read_statuses)
    return weights(model)


@pytest.mark.parametrize(("probe", "method"), FAULTS, ids=[f"{p.name}.{m}" for p, m in FAULTS])
def test_a_probe_that_fails_is_off_and_training_is_the_same(
    probe: type[Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever raises in whichever probe: one fault is told, and the weights are bitwise equal."""
    results = []
    called: list[int] = []

    def broken(*args: Any, **kwargs: Any) -> None:
        called.append(1)
        raise OSError("no luck\nat all")

    for breaks in (False, True):
        if breaks:
            monkeypatch.setattr(probe, method, broken)
        torch.manual_seed(11)
        model = small()
        optimizer = sgd(model)
        given = method in ("on_end_step", "given")
        with observed((model, optimizer)) as seen:
            if method == "on_exception":
                monkeypatch.setattr(seen.observer, "_quiet", True, raising=False)
                hook = sys.excepthook
                monkeypatch.setattr(sys, "stderr", None)
                hook(ValueError, ValueError("x"), None)
            results.append(exercise(seen, model, optimizer, given))
            assert seen.faults == ([probe.name] if breaks else [])
    assert called == [1]
    assert same(*results)
    (fault,) = [fields for _, fields in seen.urgent if "probe" in fields]
    assert fault["error"] == "OSError: no luck at all"


@pytest.mark.parametrize("probe", catalogue.PROBES, ids=[p.name for p in catalogue.PROBES])
@pytest.mark.parametrize("method", ["install", "watch_model", "watch_optimizer", "uninstall"])
def test_a_probe_that_cannot_be_placed_is_off(
    probe: type[Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placing hooks may fail like anything else: it is told once, and training goes on."""
    real = getattr(probe, method)

    def broken(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)  # so that nothing of it stays behind in this process
        raise RuntimeError("cannot")

    monkeypatch.setattr(probe, method, broken)
    model = small()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        train(model, optimizer)
    assert seen.faults == [probe.name]


def test_a_users_signal_handler_may_raise_in_our_hooks() -> None:
    """An exception of the user's own handler passes through, and no probe is blamed."""

    class Late(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Late

    model = small()
    optimizer = sgd(model)
    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with observed((model, optimizer)) as seen:
            probe = seen.observer.probes["modules"]

            def body(now: float) -> None:
                signal.raise_signal(signal.SIGUSR1)

            with pytest.raises(Late):
                seen.observer.guard(probe, body)()
            assert probe.on
        assert seen.faults == []
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert switch.is_users(KeyboardInterrupt())
    assert not switch.is_users(ValueError())


def gradients(*tensors: torch.Tensor) -> float | None:
    found = local_norm(tensors)
    if found is None:
        return None
    assert isinstance(found.value, float)
    return found.value


def test_the_norm_of_all_dtypes() -> None:
    """Mixed precisions go into one norm; float16 does not overflow, float64 is not refused."""
    half = torch.full((100,), 1000.0, dtype=torch.float16)
    double = torch.full((3,), 4.0, dtype=torch.float64)
    assert gradients(half, double) == pytest.approx(math.sqrt(100 * 1e6 + 48), rel=1e-4)
    assert gradients(torch.ones(4, dtype=torch.bfloat16), torch.zeros(0)) == pytest.approx(2.0)


def test_a_large_norm_is_not_called_infinite() -> None:
    """Squares overflow beyond 1e19; the norm itself does not."""
    assert gradients(torch.full((4,), 1e25)) == pytest.approx(2e25, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nonfinite_gradient_shows(bad: float) -> None:
    """One bad element makes the norm nonfinite."""
    value = gradients(torch.ones(5), torch.tensor([1.0, bad]))
    assert value is not None
    assert not math.isfinite(value)


def test_no_norm_where_there_is_none() -> None:
    """No gradients, or sparse ones: no number rather than a wrong one."""
    assert gradients() is None
    assert gradients(torch.ones(3).to_sparse()) is None


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
