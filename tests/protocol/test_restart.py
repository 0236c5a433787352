"""When a hub that died is started again."""

from rankscope.protocol.restart import PAUSES_S, STEADY_S, WORTH_SAYING, RestartPolicy


def test_a_hub_killed_now_and_then_is_back_at_once_every_time() -> None:
    """However often: each had lived long enough to be called steady."""
    policy = RestartPolicy()
    for _ in range(100):
        assert policy.died(STEADY_S) == 0.0
        assert not policy.failing


def test_a_crash_loop_slows_down_and_never_ends() -> None:
    """Each pause is at least as long as the one before, up to the longest; it is told once."""
    policy = RestartPolicy()
    pauses, told = [], 0
    for _ in range(50):
        pauses.append(policy.died(0.3))
        told += policy.worth_saying
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.0
    assert pauses[-1] == max(PAUSES_S)
    assert told == 1
    assert policy.failing


def test_a_hub_that_lived_again_is_trusted_again() -> None:
    """The next death costs no waiting, and a new crash loop is told anew."""
    policy = RestartPolicy()
    for _ in range(WORTH_SAYING):
        policy.died(0.3)
    assert policy.failing
    assert policy.died(STEADY_S + 1) == 0.0
    assert not policy.failing
