"""What training calls of ours where several probes look at one event."""

import itertools
import signal
import threading
import time
from typing import Any

import pytest
import torch

from rankscope.agent import guards
from rankscope.agent.observer import Observer
from rankscope.agent.probes.base import Probe
from support.observed import observed

WAIT_S = 0.001


class Plain(Probe):
    name = "plain"


class Looks(Probe):
    name = "looks"
    numbers = True


def test_parts_are_called_in_their_order_and_one_that_fails_is_off_alone() -> None:
    """The others are called as before, and the fault is told once."""
    observer, called = Observer(), []
    probes = [Plain(observer), Looks(observer), Plain(observer)]

    def body(at: int) -> guards.Body:
        def looked(now: float, subject: Any, args: Any, more: Any) -> None:
            called.append((at, subject, args, more))
            if at == 1:
                raise ValueError("for a test")

        return looked

    entered = guards.entry(observer, *((probe, body(at)) for at, probe in enumerate(probes)))
    for _ in range(2):
        assert entered("subject", (), {}) is None
    assert [at for at, *_ in called] == [0, 1, 2, 0, 2]
    assert {tuple(map(str, rest)) for _, *rest in called} == {("subject", "()", "{}")}
    assert [probe.on for probe in probes] == [True, False, True]
    assert [event[2:] for event in observer.noted] == [("looks", "ValueError: for a test")]


@pytest.mark.parametrize("kinds", [*itertools.product((False, True), repeat=3)])
def test_what_looks_at_numbers_is_counted_apart(kinds: tuple[bool, ...]) -> None:
    """Whatever comes before and after it; both together are no more than what went by."""
    observer = Observer()

    def body(now: float, subject: Any, args: Any, more: Any) -> None:
        time.sleep(WAIT_S)

    parts = [((Looks if looks else Plain)(observer), body) for looks in kinds]
    entered = guards.entry(observer, *parts)
    began_s = time.monotonic()
    entered(None, None, None)
    took_s = time.monotonic() - began_s
    looks = sum(kinds)
    assert observer.kernel_s >= looks * WAIT_S
    assert observer.spent_s >= (len(kinds) - looks) * WAIT_S
    assert observer.spent_s + observer.kernel_s <= took_s + 1e-9
    assert looks or not observer.kernel_s


def test_a_users_handler_may_raise_within_a_part() -> None:
    """Its exception goes on to the loop, and accuses no probe."""

    class Late(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Late

    def body(now: float, subject: Any, args: Any, more: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)

    observer = Observer()
    probe = Plain(observer)
    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Late):
            guards.entry(observer, (probe, body))(None, None, None)
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert probe.on
    assert not observer.noted


@pytest.mark.parametrize("anywhere", [False, True])
def test_another_threads_event_is_none_of_the_loops(anywhere: bool) -> None:
    """Unless the part is one for any thread."""
    observer, called, answers = Observer(), [], []
    body = lambda *given: called.append(given)  # noqa: E731 - as short as what it stands for
    entered = guards.entry(observer, (Plain(observer), body), anywhere=anywhere)
    thread = threading.Thread(target=lambda: answers.append(entered(None, None, None)))
    thread.start()
    thread.join()
    assert (len(called), answers) == ((1, [None]) if anywhere else (0, [True]))


def test_placing_probes_again_writes_nothing_out_anew() -> None:
    """However often observing is paused, what is kept of entries does not grow."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        kept: list[int] = []
        for _ in range(8):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            kept.append(len(guards._makers))
            seen.observer.uninstall()
            seen.observer.install()
        # What looks at the first steps only has gone by then.
        assert kept[5:] == [kept[5]] * 3
        assert seen.faults == []
