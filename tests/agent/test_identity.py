"""Which rank a process is."""

import pytest

from rankscope.agent.identity import ALONE, Identity, decide, from_environ, life

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"}


@pytest.mark.parametrize(
    ("environ", "identity"),
    [
        (TORCHRUN, Identity(3, 8, 1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Identity(0, 1, 0, 0)),
        ({"RANK": "5", "WORLD_SIZE": "8"}, Identity(5, 8, 5, 0)),
        ({}, None),
        ({"RANK": "0"}, None),
        ({"RANK": "8", "WORLD_SIZE": "8"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, None),
        ({"RANK": "one", "WORLD_SIZE": "8"}, None),
    ],
)
def test_a_launchers_environment_is_read(
    environ: dict[str, str], identity: Identity | None
) -> None:
    """torchrun's variables name the rank; nonsensical ones name none."""
    assert from_environ(environ) == identity


TORCH = Identity(2, 4, 2, 0)
LAUNCHER = Identity(3, 8, 1, 2)


@pytest.mark.parametrize(
    ("torch_says", "launcher_says", "trained", "identity"),
    [
        (None, None, False, None),
        (None, None, True, ALONE),
        (TORCH, None, False, TORCH),
        (TORCH, LAUNCHER, True, TORCH),
        (None, LAUNCHER, False, LAUNCHER),
        (None, LAUNCHER, True, LAUNCHER),
    ],
)
def test_torch_goes_before_the_launcher(
    torch_says: Identity | None,
    launcher_says: Identity | None,
    trained: bool,
    identity: Identity | None,
) -> None:
    """A process with neither is rank 0 of 1 once a step has ended, and open before."""
    assert decide(torch_says, launcher_says, trained=trained) == identity


def test_ranks_of_one_node_are_in_the_same_life_and_those_of_several_in_no_countable_one() -> None:
    """Each node's launcher counts the failures of its own ranks only."""
    restarted = {"WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert life({**restarted, "LOCAL_WORLD_SIZE": "4"}) == 2
    assert life({**restarted, "LOCAL_WORLD_SIZE": "2"}) == 0
    assert life(restarted) == 0
    assert life({}) == 0
