"""How ranks of one save hear of each other, and how one finds out that it will wait in vain."""

import threading
import time
from typing import Any

import pytest

from rankscope.agent.checkpoint.meeting import PULSE_S, SILENT_S, Failed, Meeting, Outcome
from rankscope.agent.checkpoint.stores import alone


def meeting(store: Any, rank: int, step: int, **more: Any) -> Meeting:
    told: dict[str, Any] = {
        "deadline_s": time.monotonic() + 60.0,
        "cancelled": threading.Event(),
    } | more
    return Meeting(store, f"save/{step}", rank, 2, step=step, everybody="save", **told)


def test_a_rank_that_saves_a_later_step_is_not_waited_for() -> None:
    """Counts of steps that differ end the save in words, not at its deadline."""
    store = alone()
    meeting(store, 1, 6).begin()
    zero = meeting(store, 0, 5)
    zero.begin()
    with pytest.raises(Failed, match="rank 1 saves step 6 and rank 0 step 5: their counts of"):
        zero.arrivals()


def test_a_rank_that_was_here_and_went_on_is_not_taken_for_lost() -> None:
    """Its next save may begin while this one is put together."""
    store = alone()
    one = meeting(store, 1, 5)
    one.begin()
    one.arrive(10, 11)
    meeting(store, 1, 6).begin()
    zero = meeting(store, 0, 5)
    zero.begin()
    zero.arrive(12, 13)
    assert [arrival.size_bytes for arrival in zero.arrivals()] == [12, 10]


def test_between_two_words_of_a_rank_it_is_not_taken_for_lost() -> None:
    """It may be held up anywhere in saying that it takes part: in this save, though its count is
    ahead, which the receipts tell better."""
    store = alone()
    one = meeting(store, 1, 5)
    said: list[str] = []

    class Slow:
        def set(self, key: str, value: bytes) -> None:
            said.append(key)
            store.set(key, value)

    one._store = Slow()  # type: ignore[assignment]
    one.begin()
    assert [key.split("/")[-2] for key in said] == ["pulse", "at"]


def test_a_process_that_was_stopped_has_not_waited_meanwhile() -> None:
    """Nor may the others have gone on, when all were: each has its time again to say something."""
    store = alone()
    meeting(store, 1, 5).begin()
    zero = meeting(store, 0, 5)

    def listens(now_s: float) -> None:
        zero._listen([1], "writing its part", now_s)

    now_s, ends_s = 1000.0, 0.0
    listens(now_s)
    for away_s in (500.0, 16.0):
        now_s += away_s
        listens(now_s)
        ends_s = now_s + SILENT_S
        while now_s + PULSE_S < ends_s:
            now_s += PULSE_S
            listens(now_s)
    with pytest.raises(Failed, match="rank 1 has said nothing for"):
        listens(ends_s + PULSE_S)


def test_a_rank_that_never_began_is_named_when_time_is_up() -> None:
    """It may call for saves on another condition, or on no condition at all."""
    zero = meeting(alone(), 0, 5, deadline_s=time.monotonic() + 0.1)
    zero.begin()
    zero.arrive(12, 13)
    with pytest.raises(Failed, match="waiting for rank 1; rank 1 never began this save"):
        zero.arrivals()


def test_the_first_failure_is_what_everybody_hears() -> None:
    """What comes of it later is but its consequence."""
    store = alone()
    zero, one = meeting(store, 0, 5), meeting(store, 1, 5)
    first = one.fail(Failed("rank 1, writing: No space left on device", 1, "writing"))
    later = zero.fail(Failed("rank 0, publishing: no such file", 0, "publishing"))
    assert (str(later), later.rank, later.phase) == (str(first), 1, "writing")
    with pytest.raises(Failed, match="No space left"):
        zero.arrivals()
    zero.announce(Outcome(False, 5, 0, "", str(first)))
    assert one.outcome().text == str(first)


def test_a_save_that_is_cancelled_waits_for_nobody() -> None:
    """Whatever it waits for."""
    cancelled = threading.Event()
    cancelled.set()
    zero = meeting(alone(), 0, 5, cancelled=cancelled)
    for wait in (zero.arrivals, zero.outcome):
        with pytest.raises(Failed, match="cancelled"):
            wait()
