"""The memory a rank has for its state, beside what the table of memory says."""

import pytest

from rankscope.hub.memorypredicted import prediction
from rankscope.protocol import messages as m
from rankscope.protocol.shapes import MemoryView
from support.world import World

FACTS = {"parameters": "869504", "state_factors": "4,4,8", "spread": "fsdp"}


def view(facts: dict[str, str], ranks: int = 2) -> MemoryView:
    world = World(ranks=ranks)
    world.step()
    for rank in range(ranks):
        world.hello(rank, facts=facts)
        memory = m.Memory(None, None, None, None, None, 10, 20, state_bytes=6_956_032 + rank)
        world.beat(rank, memory=memory)
    found = world.view("memory")
    assert isinstance(found, MemoryView)
    return found


def test_each_rank_has_its_own_state_beside_the_prediction() -> None:
    """And the view says what the prediction follows from."""
    found = view(FACTS)
    assert [row.state_bytes for row in found.ranks] == [6_956_032, 6_956_033]
    assert {row.predicted_state_bytes for row in found.ranks} == {869504 * 16 / 2}
    assert found.prediction == "869 504 parameters × (4+4+8) bytes, fully sharded over 2 ranks"


@pytest.mark.parametrize(
    ("spread", "ranks", "gigabytes"),
    [
        ("single", 8, 112.0),
        ("ddp", 8, 112.0),
        ("zero1", 8, 38.5),
        ("fsdp", 8, 14.0),
        ("fsdp", 4, 28.0),
        ("hybrid 4", 8, 28.0),
    ],
)
def test_it_is_the_table_of_memory(spread: str, ranks: int, gigabytes: float) -> None:
    """Seven billion parameters of 2+2+12 bytes."""
    assert prediction("7000000000", "2,2,12", spread, ranks).state_bytes == gigabytes * 1e9


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": "many"},
        {"parameters": "-5"},
        {"parameters": "9" * 400},
        {"state_factors": "4,4"},
        {"state_factors": "nan,4,8"},
        {"state_factors": "inf,4,8"},
        {"state_factors": ""},
        {"spread": "thin"},
        {"spread": "hybrid"},
        {"spread": "hybrid 3"},
        {"spread": "hybrid 0"},
    ],
)
def test_facts_that_make_no_sense_predict_nothing(changes: dict[str, str]) -> None:
    """They come from outside; what was counted is shown all the same."""
    found = view(FACTS | changes)
    assert [row.predicted_state_bytes for row in found.ranks] == [None, None]
    assert found.prediction == ""
    assert found.ranks[0].state_bytes == 6_956_032


def test_without_facts_nothing_is_predicted() -> None:
    """As of a model whose optimizer is not known."""
    assert view({}).ranks[0].predicted_state_bytes is None
