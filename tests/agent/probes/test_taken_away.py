"""After uninstall nothing of ours is left, and nothing was kept alive."""

import gc
import sys
import threading
import weakref
from typing import Any

import torch

from support.loops import sgd, small, train
from support.observed import observed


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
