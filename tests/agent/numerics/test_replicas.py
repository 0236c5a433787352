"""Checksums of replicas, from two real ranks."""

from pathlib import Path
from typing import Any

import pytest

from support.training import run

pytestmark = pytest.mark.processes

STRUCK = 3
STEPS = [1, 2, 3, 4, 5, 6]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks noted in every case."""
    home: Path = tmp_path_factory.mktemp("home")
    ended = run("replicas.py", {"RANKSCOPE_HOME": str(home)}, 2)
    assert ended.code == 0, ended.err
    return ended.lines


def by_step(rank: dict[str, Any], case: str, what: str) -> dict[int, Any]:
    return {check["step"]: check[what] for check in rank[case]["checks"]}


def shared(ranks: list[dict[str, Any]], case: str) -> list[tuple[int, bool]]:
    """The steps both ranks checked, and whether they had the same then."""
    one, other = (by_step(rank, case, "total") for rank in ranks)
    return [(step, one[step] == other[step]) for step in sorted(one.keys() & other.keys())]


def test_nothing_fails_and_no_bit_changes(ranks: list[dict[str, Any]]) -> None:
    """Under DDP, HSDP, FSDP2 and without a wrapper weights are those of a run without the agent."""
    for rank in ranks:
        for case in ("ddp", "hsdp", "fsdp", "plain"):
            assert rank[case]["same"], case
            assert rank[case]["faults"] == [], case


def test_replicas_have_equal_checksums_at_the_same_steps(ranks: list[dict[str, Any]]) -> None:
    """Of all parameters; buffers are apart, for each rank has its own running means."""
    for case, name in (("ddp", "world"), ("hsdp", "world")):
        found = shared(ranks, case)
        assert [step for step, _ in found][:2] == [1, 2]
        assert all(same for _, same in found)
        first = ranks[0][case]["checks"][0]
        assert first["replicas"] == name
        assert set(first["parameters"]) == {
            *("first.weight", "first.bias", "norm.weight", "norm.bias"),
            *("head.weight", "head.bias"),
        }
        assert all(check["altered"] in (None, []) for check in ranks[0][case]["checks"])


def test_a_shard_of_ones_own_is_compared_with_nobody(ranks: list[dict[str, Any]]) -> None:
    """Under FSDP2 over all ranks; and what has no wrapper says so."""
    assert ranks[0]["fsdp"]["checks"] == []
    assert {check["replicas"] for check in ranks[0]["plain"]["checks"]} == {"unwrapped"}


@pytest.mark.parametrize("case", ["bit", "hsdp bit"])
def test_a_flipped_bit_is_seen_in_its_step_and_by_whom(
    ranks: list[dict[str, Any]], case: str
) -> None:
    """The rank itself says which parameter was written to in the step in which it was."""
    altered = by_step(ranks[1], case, "altered")
    assert altered[STRUCK] == ["first.weight"]
    assert not any(names for step, names in altered.items() if step != STRUCK)
    assert not any(by_step(ranks[0], case, "altered").values())
    found = shared(ranks, case)
    assert all(same == (step < STRUCK) for step, same in found)
    assert any(step > STRUCK for step, _ in found)


def test_a_skipped_update_is_in_the_record(ranks: list[dict[str, Any]]) -> None:
    """On the rank that skipped it, in its step."""
    assert ranks[1]["skip"]["updated"] == [step != STRUCK for step in STEPS]
    assert ranks[0]["skip"]["updated"] == [True] * len(STEPS)
    assert all(same == (step < STRUCK) for step, same in shared(ranks, "skip"))
