"""Who had the same data: worked out in one go, or step by step, of few ranks or of many."""

import random

import numpy as np
import pytest

from rankscope.hub.state.numerics import steps as compared
from rankscope.hub.state.numerics.columns import NumericColumns
from rankscope.protocol import messages as m

RANKS = 6
NOTED = ("twin", "twin_steps", "twin_since", "compared")


def told(prints: list[list[int | None]]) -> NumericColumns:
    """What each rank told of its data, a row a step, from step 1 on."""
    columns = NumericColumns()
    columns.reserve(RANKS)
    for step, row in enumerate(prints, 1):
        for rank, one in enumerate(row):
            record = m.StepRecord(
                step=step,
                t_s=step,
                step_s=1.0,
                data_s=0.0,
                forward_s=1.0,
                backward_s=0.0,
                optimizer_s=0.0,
                other_s=0.0,
                microbatches=1,
                fingerprint=one,
                updated=True,
            )
            columns.record(rank, record)
    return columns


def noted(columns: NumericColumns) -> list[list[int]]:
    return [getattr(columns, name).tolist() for name in NOTED]


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_same_in_one_go_step_by_step_and_sorted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all differ, some are twins, come in parties, stay as they were, or tell nothing."""
    chance = random.Random(seed)
    kinds = chance.choice([1_000_000, 12, 3, 2, 1])
    gaps = chance.choice([0.0, 0.0, 0.3])
    prints = [
        [None if chance.random() < gaps else 7 + chance.randrange(kinds) for _ in range(RANKS)]
        for _ in range(9)
    ]
    if chance.random() < 0.3:
        prints[4:] = [prints[3]] * 5
    at_once, one_by_one, as_many = told(prints), told(prints), told(prints)
    among = np.zeros(at_once.size, dtype=np.bool_)
    among[:RANKS] = [chance.random() < 0.9 for _ in range(RANKS)]
    for begin, end in ((1, 4), (4, 5), (5, 10)):
        compared.find_twins(at_once, range(begin, end), among)
        for step in range(begin, end):
            compared._find_twins(one_by_one, step, among)
    monkeypatch.setattr(compared, "FEW_RANKS", 0)
    compared.find_twins(as_many, range(1, 10), among)
    assert noted(at_once) == noted(one_by_one) == noted(as_many)
