"""Who sees which bytes, and when."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankscope.trainers.config import Config
from rankscope.trainers.data import IGNORED, ByteWindows, build
from rankscope.trainers.loop import batched

TEXT = b"".join(b"%04d" % n for n in range(2_500))
"""10,000 bytes, no two windows of which are alike."""


def seen(config: Config, rank: int, ranks: int, epoch: int) -> list[list[int]]:
    """The inputs rank ``rank`` gets in epoch ``epoch``, one list for each sequence."""
    data = build(config, TEXT, rank, ranks, pin_memory=False)
    return [row for inputs, _ in data.epoch(epoch) for row in inputs.tolist()]


@given(st.binary(min_size=2, max_size=200), st.integers(1, 17), st.integers(1, 5))
def test_windows_cover_every_byte_once(text: bytes, seq_len: int, multiple: int) -> None:
    """Every byte but the first is a target exactly once, unless it begins a document."""
    windows = ByteWindows(text, seq_len, multiple)
    assert len(windows) % multiple == 0
    inputs = torch.cat([windows[n][0] for n in range(len(windows))]).tolist()
    targets = torch.cat([windows[n][1] for n in range(len(windows))]).tolist()
    assert bytes(inputs)[: len(text)] == text[: len(inputs)]
    assert [t for t in targets if t != IGNORED] == [
        after for before, after in itertools.pairwise(text) if before != 0
    ] + ([0] if len(inputs) >= len(text) and text[-1] != 0 else [])


def test_the_start_of_a_document_is_not_predicted_from_the_one_before() -> None:
    """The separator ends a document; it has no target, what comes before it has."""
    inputs, targets = ByteWindows(b"ab\0cd\0", 5)[0]
    assert inputs.tolist() == [97, 98, 0, 99, 100]
    assert targets.tolist() == [98, 0, IGNORED, 100, 0]


def test_ranks_are_disjoint_and_nothing_comes_twice_in_an_epoch() -> None:
    """Every sequence is seen by one rank, once; what does not fill a batch of all ranks is left."""
    config = Config(seq_len=16, batch_size=4)
    rows = [tuple(row) for rank in range(3) for row in seen(config, rank, 3, epoch=0)]
    windows = ByteWindows(TEXT, 16)
    assert set(rows) <= {tuple(windows[n][0].tolist()) for n in range(len(windows))}
    assert len(rows) == len(set(rows)) == len(windows) // (3 * 4) * (3 * 4)


@pytest.mark.parametrize("uneven", ["pad", "join"])
@pytest.mark.parametrize("seq_len", [16, 48, 700, 5_000])
def test_nothing_is_left_out_and_nothing_comes_twice(uneven: str, seq_len: int) -> None:
    """Where the rest is kept, every window is seen once an epoch; what is added is empty."""
    config = Config(seq_len=seq_len, batch_size=4, uneven=uneven)
    windows = ByteWindows(TEXT, seq_len)
    rows = [[tuple(row) for row in seen(config, rank, 3, epoch=1)] for rank in range(3)]
    full = [row for rank in rows for row in rank if any(row)]
    assert sorted(full) == sorted(tuple(windows[n][0].tolist()) for n in range(len(windows)))
    lengths = [len(rank) for rank in rows]
    if uneven == "pad":
        assert len(set(lengths)) == 1
        assert lengths[0] % 4 == 0
    else:
        assert sum(lengths) == len(full)
        assert max(lengths) - min(lengths) <= 1


def test_every_epoch_has_an_order_of_its_own_and_the_same_at_every_run() -> None:
    """set_epoch reshuffles; the seed fixes the order."""
    config = Config(seq_len=16, batch_size=4)
    assert seen(config, 0, 2, epoch=0) != seen(config, 0, 2, epoch=1)
    assert seen(config, 0, 2, epoch=1) == seen(config, 0, 2, epoch=1)
    assert seen(config, 0, 2, epoch=0) != seen(Config(seq_len=16, batch_size=4, seed=1), 0, 2, 0)


@pytest.mark.parametrize("uneven", ["drop", "pad", "join"])
def test_global_batches_do_not_depend_on_the_number_of_ranks(uneven: str) -> None:
    """R ranks of batch size B see what one rank of batch size R·B sees, batch for batch."""
    alone = build(Config(seq_len=16, batch_size=8, uneven=uneven), TEXT, 0, 1, pin_memory=False)
    config = Config(seq_len=16, batch_size=4, uneven=uneven)
    two = [build(config, TEXT, rank, 2, pin_memory=False) for rank in (0, 1)]
    nothing = torch.empty(0, 16), torch.empty(0, 16)  # of a rank that has run out
    for (whole, _), (left, _), (right, _) in itertools.zip_longest(
        alone.epoch(2), two[0].epoch(2), two[1].epoch(2), fillvalue=nothing
    ):
        assert sorted(whole.tolist()) == sorted(left.tolist() + right.tolist())


def test_the_last_window_of_an_epoch_may_be_shorter() -> None:
    """Seven microbatches in windows of three."""
    batch = (torch.zeros(1), torch.zeros(1))
    assert [len(window) for window in batched([batch] * 7, 3)] == [3, 3, 1]


def test_held_out_text_is_not_trained_on_and_evaluated_once() -> None:
    """Every rank evaluates equally often, and all of them together see each held-out byte once."""
    config = Config(seq_len=16, batch_size=4, eval_every=1)
    targets = []
    lengths = set()
    for rank in range(3):
        held_out = build(config, TEXT, rank, 3, pin_memory=False).held_out
        assert held_out is not None
        lengths.add(len(held_out))
        targets += [t for _, batch in held_out for t in batch.flatten().tolist() if t != IGNORED]
    assert len(lengths) == 1
    assert sorted(targets) == sorted([*TEXT[9_501:], 0])
