"""Messages that never came are counted, each once."""

from hypothesis import given
from hypothesis import strategies as st

from rankscope.hub.state.clocks import Clocks
from rankscope.hub.state.sequences import AGAIN, FRESH, LATE, MAX_REMEMBERED_GAPS, Sequences
from rankscope.protocol import messages as m
from support.world import World


def test_gaps_are_counted_and_late_numbers_taken_back() -> None:
    """1, 2, 5 misses two; 4 that comes late leaves one; 4 again changes nothing."""
    numbers = Sequences()
    numbers.reserve(1)
    assert [numbers.arrived(0, seq) for seq in (1, 2, 5)] == [FRESH] * 3
    assert numbers.missed[0] == 2
    assert numbers.arrived(0, 4) == LATE
    assert numbers.arrived(0, 4) == AGAIN
    assert numbers.arrived(0, 5) == AGAIN
    assert numbers.missed[0] == 1


@given(st.lists(st.integers(1, 60), max_size=80))
def test_missed_is_what_is_missing_below_the_newest(arrivals: list[int]) -> None:
    """Whatever the order and the repeats."""
    numbers = Sequences()
    numbers.reserve(1)
    for seq in arrivals:
        numbers.arrived(0, seq)
    newest = max(arrivals, default=0)
    assert numbers.missed[0] == newest - len(set(arrivals))


def test_a_huge_gap_costs_no_memory() -> None:
    """A sender may claim any number."""
    numbers = Sequences()
    numbers.reserve(1)
    numbers.arrived(0, 1 << 62)
    assert numbers.missed[0] == (1 << 62) - 1
    assert len(numbers.gaps[0]) == MAX_REMEMBERED_GAPS


def test_lost_messages_are_shown_per_rank_and_in_all() -> None:
    """What agents dropped and what got lost add up."""
    world = World(2)
    world.ranks[1].seq += 3
    world.step()
    world.beat(0, dropped=4)
    status = world.status()
    assert [row.missed for row in status.ranks] == [0, 3]
    assert [row.dropped for row in status.ranks] == [4, 0]
    assert status.dropped == 7


def test_a_message_that_comes_again_is_not_applied_again() -> None:
    """Late values would otherwise count twice."""
    world = World(1)
    world.step(loss=None)
    sim = world.ranks[0]
    world.beat(0, late=(m.LateValues(1, loss=4.0),))
    sim.seq -= 1
    world.beat(0, late=(m.LateValues(1, loss=4.0),))
    assert world.state.history.entries[1].loss_ranks == 1


def test_a_late_beat_brings_its_steps_but_not_its_past() -> None:
    """Records are true whenever they come; a phase of the past is not."""
    world = World(1)
    sim = world.ranks[0]
    sim.seq += 1  # one beat is on its way
    world.beat(0, phase=m.Phase.OPTIMIZER)
    sim.seq -= 2
    record = m.StepRecord(1, 0.0, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 1, 3.0)
    world.beat(0, phase=m.Phase.DATA, steps=(record,))
    row = world.status().ranks[0]
    assert (row.phase, row.loss, row.missed) == ("optimizer", 3.0, 0)


def test_a_delay_in_delivery_does_not_move_an_event() -> None:
    """The quickest message so far tells the offset; slow ones do not spoil it."""
    clocks = Clocks()
    clocks.reserve(1)
    clocks.heard(0, 10.0, 110.001)
    clocks.heard(0, 11.0, 115.0)
    assert abs(clocks.place(0, 10.5, 115.0) - 110.501) < 0.001


def test_an_estimate_of_the_senders_own_goes_first() -> None:
    """A round trip is better than a one-way guess."""
    clocks = Clocks()
    clocks.reserve(1)
    clocks.heard(0, 10.0, 110.5)
    clocks.estimated(0, 100.0, 0.001)
    assert clocks.place(0, 10.2, 200.0) == 110.2


@given(st.floats(), st.floats())
def test_no_event_is_placed_after_its_receipt(event_t_s: float, t_s: float) -> None:
    """Whatever a sender claims, NaN and infinities included."""
    clocks = Clocks()
    clocks.reserve(1)
    clocks.heard(0, t_s, 1000.0)
    assert 1000.0 - 2e8 < clocks.place(0, event_t_s, 1000.0) <= 1000.0
