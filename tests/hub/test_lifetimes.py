"""When a hub ends by itself, and who is let in."""

import pytest

from rankscope.hub import zap
from rankscope.hub.clock import Clock
from rankscope.hub.lifetimes import Lifetimes

NOW = 1000.0
GOES_ON = ""


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        # ranks live
        ({"heard_s": NOW - 1}, GOES_ON),
        ({"heard_s": NOW - 599}, GOES_ON),
        ({"heard_s": NOW - 601}, "no rank was heard"),
        ({"heard_s": NOW - 601, "client_s": NOW - 9}, GOES_ON),
        ({"heard_s": NOW - 601, "client_s": NOW - 11}, "no rank was heard"),
        # ranks ended
        ({"ranks_ended_s": NOW - 59}, GOES_ON),
        ({"ranks_ended_s": NOW - 60}, "all ranks have ended"),
        ({"ranks_ended_s": NOW - 60, "client_s": NOW - 9}, GOES_ON),
        ({"ranks_ended_s": NOW - 60, "client_s": NOW - 10}, "all ranks have ended"),
        # the launcher has said so
        ({"run_end_s": NOW - 4}, GOES_ON),
        ({"run_end_s": NOW - 5}, "the run has ended"),
        ({"run_end_s": NOW - 60, "client_s": NOW - 4}, GOES_ON),
        ({"run_end_s": NOW - 60, "client_s": NOW - 5}, "the run has ended"),
        # nobody ever came
        ({"started_s": NOW - 599}, GOES_ON),
        ({"started_s": NOW - 600}, "no rank was heard"),
        # a restarted hub gives everybody their time again
        ({"ranks_ended_s": NOW - 500, "started_s": NOW - 5}, GOES_ON),
        ({"run_end_s": NOW - 500, "started_s": NOW - 1}, GOES_ON),
    ],
)
def test_a_hub_ends_when_nobody_needs_it(times: dict[str, float], reason: str) -> None:
    """The boundaries that the protocol states."""
    given = {"run_end_s": None, "ranks_ended_s": None, "heard_s": None, "client_s": None}
    answer = Lifetimes().reason_to_end(NOW, **({"started_s": 0.0} | given | times))  # type: ignore[arg-type]
    assert answer.startswith(reason)
    assert bool(answer) == bool(reason)


KEY = b"k" * 32
ROLES = {KEY: "viewer"}


@pytest.mark.parametrize(
    ("request_", "status", "user"),
    [
        ([b"1.0", b"7", b"rankscope", b"::1", b"", b"CURVE", KEY], b"200", b"viewer"),
        ([b"1.0", b"7", b"rankscope", b"::1", b"", b"CURVE", b"x" * 32], b"400", b""),
        ([b"1.0", b"7", b"rankscope", b"::1", b"", b"CURVE", b""], b"400", b""),
        ([b"1.0", b"7", b"rankscope", b"::1", b"", b"NULL"], b"500", b""),
        ([b"1.0", b"7", b"rankscope", b"::1", b"", b"PLAIN", KEY], b"400", b""),
        ([b"2.0", b"7", b"rankscope", b"::1", b"", b"CURVE", KEY], b"500", b""),
        ([], b"500", b""),
    ],
)
def test_only_the_runs_own_keys_are_let_in(
    request_: list[bytes], status: bytes, user: bytes
) -> None:
    """The role comes back as the user id; everything else is turned away."""
    reply = zap.answer(request_, ROLES)  # type: ignore[arg-type]
    assert (len(reply), reply[0], reply[2], reply[4]) == (6, b"1.0", status, user)


def test_the_runs_time_does_not_go_back() -> None:
    """A machine's clock may be set back between two hubs of a run."""
    future_s = Clock().now_s() + 3600.0
    assert Clock(not_before_s=future_s).now_s() >= future_s
