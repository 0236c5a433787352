"""When a hub that ended is started again."""

from rankscope.tui.launcher.supervisor import MAX_DEATHS, WINDOW_S, RestartPolicy


def test_a_killed_hub_is_started_again_at_once() -> None:
    """The first death costs no waiting."""
    assert RestartPolicy().died(10.0, -9) == 10.0


def test_a_crash_loop_is_given_up() -> None:
    """More deaths than reason allows, and training goes on alone; each wait is longer."""
    policy, now_s, waits = RestartPolicy(), 10.0, []
    while (at_s := policy.died(now_s, 1)) is not None:
        waits.append(at_s - now_s)
        now_s = at_s + 0.1
    assert len(waits) == MAX_DEATHS
    assert waits == sorted(waits)


def test_old_deaths_are_forgiven() -> None:
    """A hub killed once an hour is always brought back."""
    policy = RestartPolicy()
    assert all(
        policy.died(at * (WINDOW_S + 1), -9) == at * (WINDOW_S + 1) for at in range(3 * MAX_DEATHS)
    )


def test_an_orderly_end_is_no_crash() -> None:
    """A hub that found itself idle is started again, without haste and without end."""
    policy = RestartPolicy()
    assert all(policy.died(float(at), 0) == at + 1.0 for at in range(3 * MAX_DEATHS))
