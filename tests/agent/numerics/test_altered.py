"""When a rank says out of turn that its parameters changed by no update."""

from typing import Any

import pytest

from rankscope.agent import events
from rankscope.agent.checks import Check
from rankscope.agent.observer import Observer
from rankscope.agent.probes.numerics.replicas import HABIT


@pytest.mark.parametrize(
    ("before", "altered", "woken"),
    [
        ([], ("weight",), True),
        ([False] * 7 + [True], ("weight",), True),
        ([True] * HABIT, ("weight",), False),
        ([], (), False),
        ([], None, False),
    ],
)
def test_a_change_is_urgent_where_it_is_no_habit(
    before: list[bool], altered: tuple[str, ...] | None, woken: bool
) -> None:
    """A loop that clips its weights at each step writes to them all the time."""
    observer = Observer()
    replicas: Any = observer.probes["replicas"]
    replicas._habit.extend(before)
    times: list[int] = []
    observer.urgent = lambda: times.append(1)
    replicas._arrived(Check(1, 0, ("weight",), (), False, altered, "world", 1), [7])
    assert bool(times) is woken
    assert [event[0] for event in observer.noted] == [events.CHECKSUMS]
