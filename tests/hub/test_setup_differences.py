"""``environment-mismatch`` and ``duplicate-seed``: who is set up differently, and who is not."""

from typing import Any

from rankscope.hub import snapshot
from support.world import World

FACTS = {
    "python": "3.11.7",
    "torch": "2.13.0",
    "torch_installed": "2.13.0",
    "environment": "NCCL_DEBUG=WARN\nOMP_NUM_THREADS=1",
    "environment_own": "OMP_NUM_THREADS",
}


def world(*facts: dict[str, str], per_node: int | None = None, **common: Any) -> World:
    """A run in which each rank says ``FACTS`` and what is given, and has made a step."""
    found = World(ranks=len(facts), per_node=per_node, **common)
    for rank, own in enumerate(facts):
        said = {name: value for name, value in (FACTS | own).items() if value != "-"}
        found.hello(rank, facts=said)
    return found.step()


def env(*lines: str, own: str = "") -> dict[str, str]:
    return {"environment": "\n".join(lines), "environment_own": own}


def test_equal_ranks_are_not_told_apart() -> None:
    """Seeds of their own and equal facts are no finding."""
    found = world(*({"seed": str(rank), "rng": "a"} for rank in range(4)))
    assert found.kinds() == []


def test_the_minority_is_odd() -> None:
    """One of four with a variable the others lack; a minority of versions alike, in one finding."""
    same = env("NCCL_DEBUG=WARN")
    found = world(
        same, same, env("NCCL_DEBUG=WARN", "NCCL_PROTO=Simple") | {"python": "3.12"}, same
    )
    finding = found.finding("environment-mismatch")
    assert (finding.ranks, finding.severity) == ([2], "warning")
    assert finding.headline == (
        "rank 2 is set up differently: Python 3.12, not 3.11.7 (and 1 more)"
    )
    assert "NCCL_PROTO: not set on ranks 0, 1 and 3; Simple on rank 2" in finding.evidence


def test_of_two_the_one_with_a_value_of_its_own_is_odd() -> None:
    """What it has from nobody who started it tells, whichever of the two it is."""
    has = env("NCCL_PROTO=Simple", own="NCCL_PROTO")
    for ranks, odd in (((env(), has), 1), ((has, env()), 0)):
        assert world(*ranks).finding("environment-mismatch").ranks == [odd]


def test_of_two_the_one_whose_torch_is_not_the_installed_one_is_odd() -> None:
    """A version other than the one that is installed where the rank runs."""
    assert world({}, {"torch": "2.8.1"}).finding("environment-mismatch").ranks == [1]
    assert world({"torch": "2.8.1"}, {}).finding("environment-mismatch").ranks == [0]


def test_of_two_nobody_is_accused_without_a_reason() -> None:
    """Both have theirs from whoever started them, or both changed it."""
    for own in ("", "NCCL_PROTO"):
        found = world(env(own=own), env("NCCL_PROTO=Simple", own=own))
        finding = found.finding("environment-mismatch")
        assert finding.ranks == []
        assert "cannot be told" in finding.evidence[-1]
        assert "NCCL_PROTO is not set on rank 0; Simple on rank 1" in finding.headline


def test_half_against_half_is_told_without_culprits() -> None:
    """Two and two: the same as of two ranks."""
    two = env("NCCL_ALGO=Ring")
    assert world(env(), env(), two, two).finding("environment-mismatch").ranks == []


def test_what_a_node_has_of_its_own_is_compared_within_it() -> None:
    """Interfaces differ from node to node by design; within a node they should not."""
    eth, ib = env("NCCL_SOCKET_IFNAME=eth0"), env("NCCL_SOCKET_IFNAME=ib0")
    assert world(eth, eth, ib, ib, per_node=2).kinds() == []
    found = world(eth, eth, eth, ib, ib, ib, ib, eth, per_node=4)
    assert [finding.ranks for finding in found.findings()] == [[3], [7]]


def test_a_fact_that_a_rank_does_not_tell_is_no_difference() -> None:
    """An older agent, or one that could not read it."""
    assert world({}, {"python": "-"}, {"environment": "-", "environment_own": "-"}).kinds() == []


def test_it_is_told_of_ranks_that_never_step() -> None:
    """The difference may be the reason; and not at once, while facts still come."""
    found = World(ranks=2)
    found.hello(0, facts=FACTS)
    found.hello(1, facts=FACTS | {"nccl": "2.20"} | {"python": "3.12"})
    assert found.kinds() == []
    found.advance(4.0)
    assert found.finding("environment-mismatch").ranks == []


def test_the_difference_is_known_after_a_restart_of_the_hub() -> None:
    """Facts are part of the snapshot, seeds too."""
    found = world({"seed": "1", "rng": "a"}, {"seed": "1", "rng": "a", "torch": "2.8.1"})
    again = snapshot.load(snapshot.dump(found.state))
    assert again.setup.own == found.state.setup.own
    assert sorted(found.kinds()) == ["duplicate-seed", "environment-mismatch"]


def test_a_shared_seed_is_a_warning_where_it_sets_ranks_apart() -> None:
    """Two of four draw the same."""
    seeds = ("1", "2", "3", "2")
    found = world(*({"seed": seed, "rng": seed} for seed in seeds))
    finding = found.finding("duplicate-seed")
    assert (finding.ranks, finding.severity) == ([1, 3], "warning")
    assert finding.headline == "ranks 1 and 3 draw the same random numbers: seed 2"


def test_a_seed_that_all_share_is_only_noted() -> None:
    """It may be meant, and so may equally large sets of ranks with one seed each."""
    same = {"seed": "1", "rng": "a"}
    finding = world(same, same).finding("duplicate-seed")
    assert (finding.ranks, finding.severity) == ([0, 1], "info")
    other = {"seed": "2", "rng": "b"}
    found = world(same, other, same, other)
    assert {(tuple(f.ranks), f.severity) for f in found.findings()} == {
        ((0, 2), "info"),
        ((1, 3), "info"),
    }


def test_one_seed_at_different_places_is_no_finding() -> None:
    """The ranks have drawn differently since."""
    assert world({"seed": "1", "rng": "a"}, {"seed": "1", "rng": "b"}).kinds() == []


def test_a_rank_shows_its_seed() -> None:
    """Its page has all its facts."""
    found = world({"seed": "7", "rng": "a"}, {"seed": "8", "rng": "b"})
    assert found.view("rank", rank=1).facts["seed"] == "8"
