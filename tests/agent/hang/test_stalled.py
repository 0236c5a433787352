"""What ranks say by themselves when nothing moves, and when they are asked."""

from collections.abc import Callable
from subprocess import Popen

import pytest

from rankscope.protocol import messages as m
from support.listener import Listener
from support.wire import wait_until

Launch = Callable[..., Popen[str]]

pytestmark = pytest.mark.processes


def test_ranks_that_stand_still_say_where(hub: Listener, launch: Launch) -> None:
    """The rank that is stuck and the one that waits for it send stacks and collectives unasked."""
    launch(2, fault="wait", rank=1, step=8)
    stuck, waiting = (
        wait_until(lambda: of_step(hub.of_rank(m.Stacks, rank)), timeout_s=150)  # noqa: B023
        for rank in (1, 0)
    )
    for one, function in ((stuck, "wait_for_the_end"), (waiting, "main")):
        assert one.why == "stalled"
        assert one.source.startswith("hang.py:")
        assert one.source.endswith(f" in {function}")
        assert one.step == 7
        assert [thread.name for thread in one.threads] == ["MainThread", "helper"]
        assert [thread.main for thread in one.threads] == [True, False]
    assert stuck.threads[0].frames[0].function == "wait_for_the_end"

    entered, pending = (
        wait_until(lambda: of_count(hub.of_rank(m.Operations, rank), count))  # noqa: B023
        for rank, count in ((1, 26), (0, 27))
    )
    assert pending.operations[-1].seq == entered.operations[-1].seq + 1
    assert pending.operations[-1].name == "gloo:all_reduce"
    assert pending.operations[-1].sizes == "[8] -> [8]"
    assert pending.operations[-1].dtype == "float32"
    assert [one.state for one in pending.operations[-2:]] == ["completed", "scheduled"]
    assert entered.operations[-1].state == "completed"
    seqs = [one.seq for one in pending.operations]
    assert seqs == sorted(seqs)

    assert pending.operations[-1].source.startswith("hang.py:")
    assert pending.operations[-1].source.endswith(" in main")
    assert pending.operations[-3].source == ""  # DDP's own

    for kind in (m.Stacks, m.Operations):
        wait_until(lambda: asked(hub, kind, 1))  # noqa: B023


def of_step(stacks: list[m.Stacks]) -> m.Stacks | None:
    """The first that were sent in the step that hangs: a busy machine may stall before."""
    return next((one for one in stacks if one.step == 7), None)


def of_count(operations: list[m.Operations], count: int) -> m.Operations | None:
    """The first with so many collectives."""
    return next((one for one in operations if len(one.operations) == count), None)


def asked(hub: Listener, kind: type[m.Stacks] | type[m.Operations], rank: int) -> bool:
    """Whether ``rank`` has answered; the question goes to whoever is heard of next."""
    hub.reply(m.Inquire(rank, ("nonsense", "stacks", "operations")))
    return any(one.why == "asked" for one in hub.of_rank(kind, rank))
