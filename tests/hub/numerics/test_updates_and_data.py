"""Updates that were not made, and data that were read twice."""

import pytest

from support.numericworld import NumericWorld


def test_ranks_that_skip_an_update_which_others_make_are_named() -> None:
    """One rank steps alone: the others' parameters stay behind."""
    world = NumericWorld(4).clean(8).done(updated={0: False, 2: False, 3: False})
    finding = world.finding("silent-skip")
    assert (finding.ranks, finding.step, finding.severity) == ([0, 2, 3], 9, "critical")
    assert "step 9: rank 1 updated, ranks 0, 2 and 3 did not" in finding.evidence


def test_the_divergence_it_causes_is_no_finding_of_its_own() -> None:
    """It is said in the evidence."""
    world = NumericWorld(2).clean(8).done(updated={0: False}, tick=False).checks({0: 1, 1: 2})
    finding = world.finding("silent-skip")
    assert any("replicas differ since step 9" in line for line in finding.evidence)
    assert world.ever() == {"silent-skip"}


def test_skips_of_all_ranks_together_are_ordinary() -> None:
    """A guard or a scaler skips now and then."""
    world = NumericWorld(2).clean(8)
    for _ in range(3):
        world.done(updated={0: False, 1: False}).clean(4)
    assert world.ever() == set()


def test_a_run_that_updates_no_more_is_warned_of() -> None:
    """Twenty steps in a row, and neither a NaN nor a scaler explains it."""
    world = NumericWorld(2).clean(5).clean(19, updated={0: False, 1: False})
    assert world.kinds() == []
    finding = world.clean(3, updated={0: False, 1: False}).finding("silent-skip")
    assert (finding.severity, finding.ranks, finding.step) == ("warning", [], 6)
    assert world.clean(1).kinds() == []


@pytest.mark.parametrize("scale", [None, 1024.0])
def test_a_run_that_never_updated_is_none(scale: float | None) -> None:
    """A loop that only evaluates, or a scaler that is at work."""
    world = NumericWorld(2).clean(30, updated={0: False, 1: False}, scale=scale)
    assert world.ever() == set()


def test_the_first_step_may_begin_midway() -> None:
    """A rank that attached before its first update, and one that attached after it."""
    assert NumericWorld(2).done(updated={0: False}).clean(3).ever() == set()


def shared(world: NumericWorld, steps: int, ranks: tuple[int, ...], salt: int = 0) -> NumericWorld:
    for step in range(steps):
        world.done(prints=dict.fromkeys(ranks, 77_000_000_077 * (step + 1) + salt))
    return world


def test_two_ranks_with_the_same_data_are_both_named() -> None:
    """From the step on in which it began, once it is no chance any more."""
    world = shared(NumericWorld(4), 2, (1, 3))
    assert world.kinds() == []
    finding = shared(world, 3, (1, 3), 5).finding("duplicate-data")
    assert (finding.ranks, finding.step, finding.severity) == ([1, 3], 1, "warning")


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ranks_with_the_same_data_are_a_forgotten_sampler(ranks: int) -> None:
    """The most common one: nobody told the loader which rank it is."""
    finding = shared(NumericWorld(ranks), 4, tuple(range(ranks))).finding("duplicate-data")
    assert finding.ranks == list(range(ranks))
    assert "all ranks read the same data" in finding.headline


def test_fingerprints_need_not_be_taken_at_every_step() -> None:
    """Where they are dear they are taken now and then; the steps between say nothing."""
    world = NumericWorld(2)
    for step in range(12):
        fingerprint = None if step % 4 else 5_000_011 * (step + 1)
        world.done(prints={0: fingerprint, 1: fingerprint})
    assert world.finding("duplicate-data").ranks == [0, 1]


def test_data_that_never_change_are_made_up() -> None:
    """A benchmark feeds the same batch to all, for ever."""
    world = NumericWorld(4)
    for _ in range(10):
        world.done(prints=dict.fromkeys(range(4), 42))
    assert world.ever() == set()


def test_ranks_that_split_a_model_share_their_data_by_design() -> None:
    """Pairs of ranks with the same data each, none without: tensor parallel."""
    world = NumericWorld(4)
    for step in range(10):
        world.done(prints={rank: 1000 * step + rank // 2 for rank in range(4)})
    assert world.ever() == set()


def test_it_closes_when_the_data_part() -> None:
    """A sampler that was set right in the next epoch."""
    world = shared(NumericWorld(4), 5, (0, 2))
    assert world.kinds() == ["duplicate-data"]
    assert world.clean(1).kinds() == []


def test_a_single_rank_has_no_twin() -> None:
    """And no other to differ from."""
    world = NumericWorld(1).clean(10, updated={0: True})
    assert world.ever() == set()
