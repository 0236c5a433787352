"""Checksums over the bits of tensors, and which tensors are compared with whom."""

import random

import pytest
import torch

from rankscope.agent.checks import NAMED_EVERY, Check, Checks
from rankscope.agent.probes.numerics import layout
from rankscope.agent.probes.numerics.checksum import Summer, mixed, total
from rankscope.protocol.messages import Checksums

SIZES = (1, 2, 3, 7, 64, 1000, 16384, 16385, 40007)


def checksums(*tensors: torch.Tensor) -> list[int]:
    found: list[int] = Summer().checksums(tensors).tolist()
    return found


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.complex64],
)
def test_one_flipped_bit_changes_the_checksum(dtype: torch.dtype) -> None:
    """Any bit of any element, the highest and the last among them, of small and large tensors."""
    draw = random.Random(1)
    tensors = [torch.ones(size, dtype=dtype) for size in SIZES]
    before = checksums(*tensors)
    for index, tensor in enumerate(tensors):
        raw = tensor.view(torch.uint8)
        places = [0, raw.numel() - 1, *(draw.randrange(raw.numel()) for _ in range(5))]
        for place in places:
            bit = draw.choice((1, 128, 1 << draw.randrange(8)))
            raw[place] ^= bit
            after = checksums(*tensors)
            assert [
                i for i, pair in enumerate(zip(before, after, strict=True)) if len(set(pair)) > 1
            ] == [index]
            raw[place] ^= bit
    assert checksums(*tensors) == before


def test_a_swap_of_neighbours_changes_it() -> None:
    """The place of a number counts, not only its value."""
    for size in (4, 20000):
        tensor = torch.arange(size, dtype=torch.float32)
        swapped = tensor.clone()
        swapped[[0, 3]] = swapped[[3, 0]]
        assert checksums(tensor) != checksums(swapped)


def test_equal_bits_have_equal_checksums_however_they_lie() -> None:
    """Alone or among others, contiguous or not, at an odd place in memory: the bits decide."""
    tensor = torch.randn(60, 300)
    apart = torch.zeros(18001)[1:].copy_(tensor.view(-1)).view(60, 300)
    turned = tensor.t().contiguous().t()
    alone = checksums(tensor)
    assert checksums(apart) == checksums(turned) == alone
    assert checksums(torch.ones(3), tensor, torch.ones(5))[1] == alone[0]
    assert checksums(torch.tensor([0.0])) != checksums(torch.tensor([-0.0]))


def test_what_has_no_bits_is_left_out() -> None:
    """Empty, meta, sparse and freed tensors count as nothing; nothing raises."""
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    odd = [torch.zeros(0), torch.ones(2, device="meta"), torch.ones(2, 2).to_sparse(), freed]
    assert checksums(*odd) == [0, 0, 0, 0]
    assert checksums() == []


def test_the_number_of_the_wire_is_made_of_every_bit() -> None:
    """63 bits, other ones for any other checksum or order."""
    values = [0, 1, -1, 1 << 62, -(1 << 63)]
    assert len({mixed(value) for value in values}) == len(values)
    assert all(0 <= mixed(value) < 1 << 63 for value in values)
    assert len({total([1, 2]), total([2, 1]), total([1]), total([])}) == 4


def test_parts_are_odd_in_number_so_that_every_other_step_reaches_all() -> None:
    """Steps that are multiples of a power of two come to every part, as n modulo their number."""
    for count in (1, 2, 5, 40):
        sizes = [layout.PART_BYTES] * count
        parts = layout.parts(range(count), sizes)
        assert [index for part in parts for index in part] == list(range(count))
        for every in (1, 2, 8, 64):
            visited = {step % len(parts) for step in range(every, every * 300, every)}
            assert visited == set(range(len(parts)))


def test_small_models_are_one_part() -> None:
    """All of it at every check."""
    assert layout.parts(range(100), [1000] * 100) == [list(range(100))]
    assert len(layout.parts(range(1000), [8] * 1000)) == 3


def test_who_holds_the_same() -> None:
    """Under DDP its group, without a wrapper nobody knows, sharded by FSDP nobody."""
    plain = [torch.ones(2)]
    assert layout.layout(plain, [8], "ddp", "world").replicas == "world"
    assert layout.layout(plain, [8], "plain", "world").replicas == "unwrapped"
    assert layout.layout(plain, [8], "fsdp1", "world") == layout.Layout("", [])
    assert layout.label(range(300)) != layout.label(range(301))


def check(number: int, **fields: object) -> Check:
    known: dict[str, object] = {
        "number": number,
        "first": 0,
        "names": ("a", "b"),
        "buffers": (),
        "compared": True,
        "written": (),
        "replicas": "world",
        "every": 1,
    }
    return Check(**(known | fields))  # type: ignore[arg-type]


def test_names_go_with_few_checks() -> None:
    """Most have their total alone; every eighth, a slow one and one with trouble has all of it."""
    checks = Checks()
    sizes = []
    for step in range(1, 17):
        kind, fields = checks.said(step, step * 0.01, check(step), [1, 2], ())
        assert kind is Checksums
        sizes.append(len(fields["values"]))
    assert sizes == [2 if step == 1 or step % NAMED_EVERY == 0 else 0 for step in range(1, 17)]
    _, fields = checks.said(17, 0.17, check(17), [1, 2], ("b",))
    assert [one.name for one in fields["values"]] == ["a", "b"]
    assert fields["altered"] == ("b",)
    _, fields = checks.said(18, 1.17, check(18), [1, 2], None)
    assert len(fields["values"]) == 2
    ((_, newest),) = checks.newest()
    assert (newest["step"], len(newest["values"])) == (18, 2)


def test_buffers_are_told_apart_and_not_in_the_total() -> None:
    """Replicas need not have them alike."""
    checks = Checks()
    _, with_one = checks.said(8, 0.0, check(8, buffers=("mean",)), [1, 2, 3], ())
    _, with_other = checks.said(16, 0.01, check(16, buffers=("mean",)), [1, 2, 4], ())
    assert with_one["total"] == with_other["total"]
    assert [(one.name, one.buffer) for one in with_one["values"]] == [
        ("a", False),
        ("b", False),
        ("mean", True),
    ]
    assert with_one["values"][2] != with_other["values"][2]
