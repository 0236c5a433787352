"""What is kept while there is no hub."""

from rankscope.agent.outbox import FIRST_KEPT, MAX_URGENT, Outbox
from rankscope.protocol.messages import Goodbye, ProbeFault, Raised, Signs


def drained(outbox: Outbox) -> list[tuple[str, int]]:
    """All messages of their own that wait: kind and step."""
    found = []
    while (waiting := outbox.next_urgent()) is not None:
        kind, fields = waiting
        found.append((kind.__name__, fields["step"]))
        outbox.urgent_sent()
    return found


def test_first_signs_survive_a_long_time_without_hub() -> None:
    """Where a NaN began is still told when it has gone on for many steps without a hub."""
    outbox = Outbox()
    for step in range(20, 20 + 10 * MAX_URGENT):
        outbox.put_urgent(Signs, step=step)
    kept = drained(outbox)
    assert kept[:FIRST_KEPT] == [("Signs", step) for step in range(20, 20 + FIRST_KEPT)]
    assert kept[-1] == ("Signs", 19 + 10 * MAX_URGENT)
    assert len(kept) == MAX_URGENT


def test_what_is_said_once_is_not_pushed_out_by_what_is_repeated() -> None:
    """An exception and the goodbye stay, whatever number of signs comes around them."""
    outbox = Outbox()
    for step in range(MAX_URGENT):
        outbox.put_urgent(Signs, step=step)
    outbox.put_urgent(Raised, step=100)
    for step in range(200, 200 + 2 * MAX_URGENT):
        outbox.put_urgent(Signs, step=step)
    outbox.put_urgent(Goodbye, step=1000)
    kept = drained(outbox)
    assert ("Raised", 100) in kept
    assert kept[-1] == ("Goodbye", 1000)
    assert len(kept) == MAX_URGENT


def test_what_waits_is_bounded_by_any_kind_of_message() -> None:
    """Messages that never repeat are bounded, too; the first and the newest are kept."""
    outbox = Outbox()
    for step in range(3 * MAX_URGENT):
        outbox.put_urgent(ProbeFault, step=step)
    kept = [step for _, step in drained(outbox)]
    assert kept[0] == 0
    assert kept[-1] == 3 * MAX_URGENT - 1
    assert len(kept) == MAX_URGENT
