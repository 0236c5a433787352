"""The model and the objective, in one process."""

import math

import pytest
import torch

from rankscope.trainers.data import IGNORED
from rankscope.trainers.model import Shape, Transformer, initialise
from rankscope.trainers.objective import loss_sum, share, valid_tokens

SHAPE = Shape(seq_len=16, layers=2, dim=32, heads=4)


def model(seed: int = 0) -> Transformer:
    made = Transformer(SHAPE)
    initialise(made, SHAPE.layers, seed)
    return made


def test_the_model_is_causal() -> None:
    """A later byte changes no earlier prediction, and does change its own."""
    tokens = torch.randint(0, 256, (2, 16), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 256
    with torch.no_grad():
        before, after = model()(tokens), model()(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9], after[:, 9])


def test_a_new_model_knows_nothing() -> None:
    """Its first loss is that of guessing among 256 bytes."""
    tokens = torch.randint(0, 256, (8, 17), generator=torch.Generator().manual_seed(1))
    loss = loss_sum(model()(tokens[:, :-1]), tokens[:, 1:]) / tokens[:, 1:].numel()
    assert loss.item() == pytest.approx(math.log(256), abs=0.1)


def test_initial_values_depend_on_the_seed_alone() -> None:
    """The same to the bit for one seed, also when the model was built without storage."""
    meta = None
    with torch.device("meta"):
        meta = Transformer(SHAPE)
    meta.to_empty(device="cpu")
    torch.manual_seed(99)
    initialise(meta, SHAPE.layers, 0)
    for one, other in zip(model().parameters(), meta.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(model(0).head.weight, model(1).head.weight)


def test_the_loss_is_the_global_sum_over_the_global_count() -> None:
    """Ranks of 2 and 6 tokens with means of 3 and 1 have a loss of 1.5, not 2."""
    sums = [torch.tensor(2 * 3.0), torch.tensor(6 * 1.0)]
    shares = [share(total, ranks=2, tokens=8) for total in sums]
    assert torch.stack(shares).mean().item() == 1.5


def test_no_valid_token_is_a_zero_that_can_be_differentiated() -> None:
    """A rank with nothing to learn still has a gradient, of zeros, for every parameter."""
    made = model()
    targets = torch.full((2, 16), IGNORED)
    loss = loss_sum(made(torch.zeros(2, 16, dtype=torch.long)), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0
    for parameter in made.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_valid_tokens_are_those_with_a_target() -> None:
    """All microbatches of the update count."""
    targets = torch.tensor([[1, IGNORED], [0, 3]])
    assert valid_tokens([(targets, targets), (targets, targets)]) == 6
