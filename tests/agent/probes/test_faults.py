"""A probe that fails is off, is told once, and training is the same."""

import contextlib
import signal
import sys
from typing import Any

import pytest
import torch

from rankscope.agent import switch
from rankscope.agent.probes import catalogue
from rankscope.agent.probes.batches import timed
from support.loops import same, sgd, small, train, weights
from support.observed import Observed, observed

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
