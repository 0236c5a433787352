"""The parts of an experiment that need no ranks: which batches, and what times come to."""

import pytest
import torch

from rankscope.protocol.experiments import UPDATES_COUNTED, Case, Job, decode_job, encode
from rankscope.trainers.experiments.prediction import parameters, predict, remembered
from rankscope.trainers.experiments.tensorbytes import TensorBytes, storage_bytes
from rankscope.trainers.model import Shape, Transformer


def case(trainer: str = "ddp", **changes: object) -> Case:
    given: dict[str, object] = {
        "layers": 3,
        "dim": 16,
        "heads": 2,
        "seq_len": 8,
        "batch_size": 2,
        "trainer": trainer,
        **changes,
    }
    return Case(**given)  # type: ignore[arg-type]


def test_a_job_is_the_same_after_its_way_to_the_ranks() -> None:
    """It travels as JSON."""
    job = Job(cases=[case(), case("fsdp2")], updates=9, untimed=UPDATES_COUNTED + 1)
    assert decode_job(encode(job)) == job


def test_parameters_are_counted_without_a_model_in_memory() -> None:
    """A block's, and those of what is no block."""
    model = Transformer(Shape(seq_len=8, layers=3, dim=16, heads=2))
    block, rest = parameters(case())
    assert rest + 3 * block == sum(p.numel() for p in model.parameters())
    assert block == sum(p.numel() for p in model.blocks[1].parameters())


def test_what_is_gathered_is_half_in_16_bits_and_all_where_it_is_kept() -> None:
    """Nothing is gathered on one rank."""
    wide = predict(case("fsdp2"), 4, 0.0)
    assert predict(case("fsdp2", precision="bf16"), 4, 0.0).gather < wide.gather
    kept = predict(case("fsdp2", reshard_after_forward=False), 4, 0.0)
    block, _ = parameters(case())
    assert kept.gather - wide.gather == 4 * block  # the third block, beside the two in work
    assert predict(case("fsdp2"), 1, 0.0).gather == 0.0
    assert predict(case(), 4, 0.0).gather == 0.0


def test_activations_are_measured_once_for_all_that_compute_alike() -> None:
    """In fp32 both trainers do; in bf16 autocast and whole-model casts do not."""
    asked: list[Case] = []

    def measure(one: Case) -> float:
        asked.append(one)
        return 1.0

    activation = remembered(measure)
    for one in (case(), case("fsdp2"), case("fsdp2", reshard_after_forward=False)):
        activation(one)
    assert len(asked) == 1
    for one in (case(precision="bf16"), case("fsdp2", precision="bf16"), case(recompute="full")):
        activation(one)
    assert len(asked) == 4


def test_tensor_bytes_come_and_go() -> None:
    """The peak is the most there was at once, and a view is no bytes of its own."""
    counted = TensorBytes("cpu")
    with counted:
        one = torch.zeros(1000)
        assert counted.now == 4000
        view = one[10:20]
        assert counted.now == 4000
        two = one + 1
        assert counted.now == 8000
        del one, two
        assert counted.now == 4000  # the view keeps what it looks at
        del view
        assert counted.now == 0
    assert counted.peak == 8000
    counted.restart()
    assert counted.peak == 0


def test_what_was_there_before_is_not_counted_unless_adopted() -> None:
    """Such as the data that windows are cut from."""
    text = torch.zeros(1000)
    counted = TensorBytes("cpu")
    with counted:
        window = text[:10]
        assert counted.now == 0
        counted.adopt([window])
        assert counted.now == 4000


def test_a_storage_that_is_emptied_and_filled_again_is_followed() -> None:
    """As FSDP2 frees and gathers parameters; and torch is as it was afterwards."""
    resize = torch.UntypedStorage.resize_
    counted = TensorBytes("cpu")
    with counted:
        gathered = torch.zeros(100)
        gathered.untyped_storage().resize_(0)
        assert counted.now == 0
        gathered.untyped_storage().resize_(400)
        assert counted.now == 400
    assert torch.UntypedStorage.resize_ is resize


def test_counting_changes_no_bit() -> None:
    """Of gradients, in forward and backward."""

    def gradient() -> torch.Tensor:
        torch.manual_seed(0)
        model = Transformer(Shape(seq_len=8, layers=1, dim=16, heads=2))
        tokens = torch.randint(0, 256, (2, 8))
        model(tokens).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    plain = gradient()
    with TensorBytes("cpu"):
        counted = gradient()
    assert torch.equal(plain, counted)


def test_a_storage_counts_once() -> None:
    """However many tensors look at it."""
    whole = torch.zeros(100)
    assert storage_bytes([whole, whole[:10], whole.view(10, 10)]) == 400


@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_without_activations_no_peak_is_predicted(trainer: str) -> None:
    """A figure without its largest term would mislead."""
    assert predict(case(trainer), 2, None).peak is None
