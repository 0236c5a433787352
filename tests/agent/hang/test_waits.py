"""How much of a step a rank waited for others."""

import pytest

from rankscope.agent.clock.waits import Waits
from rankscope.protocol.messages import Phase


def test_waits_are_told_by_phase() -> None:
    """In the order data, forward, backward, optimizer, other."""
    waits = Waits()
    waits.waited(Phase.STARTING, 50.0)  # before the first step
    for phase, took_s in ((Phase.DATA, 1.0), (Phase.FORWARD, 2.0), (Phase.OPTIMIZER, 4.0)):
        waits.waited(phase, took_s)
        waits.waited(phase, took_s)
    waits.waited(Phase.OTHER, 5.0)
    assert waits.take() == (2.0, 4.0, 0.0, 8.0, 5.0)
    assert waits.take() == (0.0, 0.0, 0.0, 0.0, 0.0)


def test_the_end_of_a_backward_is_waiting() -> None:
    """From the last gradient on; a wait within that time is not counted twice."""
    waits = Waits()
    waits.waited(Phase.BACKWARD, 0.5)
    waits.computed(10.0)
    waits.waited(Phase.BACKWARD, 1.0)
    waits.backward_ended(13.0)
    assert waits.take()[2] == pytest.approx(3.5)


def test_what_could_not_be_seen_is_not_said_to_be_nothing() -> None:
    """Without a collective, and where a backward's end may hide one, there is no number."""
    waits = Waits()
    waits.computed(1.0)
    waits.backward_ended(1.1)
    assert waits.take() == ()
    waits.waited(Phase.OTHER, 1.0)
    waits.backward_ended(3.0)
    assert waits.take() == ()
    waits.computed(4.0)
    waits.backward_ended(4.5)
    assert waits.take()[2] == pytest.approx(0.5)
