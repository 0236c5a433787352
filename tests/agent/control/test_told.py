"""What a rank tells of requests and saves is all there, whenever its threads get on with them."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore

from rankscope.agent.checkpoint import Checkpointer
from rankscope.agent.checkpoint.meeting import Outcome
from rankscope.agent.checkpoint.progress import Progress, Snapshot
from rankscope.agent.control.account import Account
from rankscope.agent.control.control import Control, Now
from rankscope.agent.control.reports import IN_WORK, Reports
from rankscope.agent.control.request import STOP, Request
from rankscope.agent.control.round import Round

Told = list[tuple[str, int]]
"""Phases, and of which request or step."""

WORDS = 3
MOMENTS = range(2 * WORDS)
"""Before each of the first words, and while it leaves."""

Change = Callable[[], object]


class Playing:
    """Changes that other threads make, each at its moment."""

    def __init__(self, changes: list[Change], moments: tuple[int, ...]) -> None:
        self._changes = list(zip(moments, changes, strict=True))
        self._now = 0

    def goes_on(self) -> None:
        for at, change in self._changes:
            if at == self._now:
                change()
        self._now += 1


def when(changes: int) -> Iterator[tuple[int, ...]]:
    """All moments at which so many changes may come, one not before the other."""
    return itertools.combinations_with_replacement(MOMENTS, changes)


def told_by(
    due: Callable[[], dict[str, Any] | None],
    sent: Callable[[], None],
    of: str,
    playing: Playing | None = None,
) -> Told:
    """All that is told until there is nothing more to say."""
    told: Told = []
    for _ in range(WORDS + 8):
        if playing is not None:
            playing.goes_on()
        fields = due()
        if playing is not None:
            playing.goes_on()
        if fields is not None:
            told.append((fields["phase"], fields.get(of, 0)))
            sent()
    return told


def of_account(account: Account, playing: Playing | None = None) -> Told:
    return told_by(lambda: account.due(0.0), account.sent, "request", playing)


def controlled() -> Control:
    control = Control(0, "told", lambda: (0, 1), HashStore)
    control.completed = 1
    return control


def begun(control: Control, number: int) -> Round:
    """The next request is in work."""
    one = Round(Request(number, STOP, "ada", expires_s=60.0), "told", 0, 1, 0.0)
    control.turns.round = one
    return one


def test_what_came_of_each_request_is_told_once_and_in_order() -> None:
    """Also of one that is over while something else is on its way; how things are comes last."""
    for moments in when(4):
        control = controlled()
        turns = control.turns
        changes: list[Change] = [
            partial(turns.say, Request(1, STOP, "ada"), "cancelled", 0, ""),
            lambda c=control: c.turns.finish(begun(c, 2), "given-up", ""),  # type: ignore[misc]
            lambda c=control: c.turns.finish(begun(c, 3), "done", ""),  # type: ignore[misc]
            partial(begun, control, 4),
        ]
        told = of_account(Account(control), Playing(changes, moments))
        ends = [one for one in told if one[0] in ("cancelled", "given-up", "done")]
        assert ends == [("cancelled", 1), ("given-up", 2), ("done", 3)], moments
        assert told[-1] == ("waiting", 4), moments


def test_that_a_request_is_over_is_told_with_what_came_of_it() -> None:
    """And not that there is none: whoever hears that takes it for one that nothing came of."""
    control = controlled()
    one = begun(control, 1)
    account = Account(control)
    assert account.due(0.0) is not None
    account.sent()
    asked = control.now

    def over_by_then(now_s: float) -> Now:
        if control.turns.round is one:
            control.turns.finish(one, "done", "")
        return asked(now_s)

    control.now = over_by_then  # type: ignore[method-assign]
    assert of_account(account) == [("done", 1), ("idle", 0)]


class Saver:
    """What is asked of a Checkpointer."""

    def __init__(self) -> None:
        self.on_outcome: list[Callable[[Any], None]] = []
        self.now = Progress()

    def progress(self) -> Snapshot:
        return self.now.read()

    def over(self, step: int, ok: bool) -> None:
        self.on_outcome[0](Outcome(ok, step, 0, "", ""))
        self.now.enter("done" if ok else "failed")


def test_what_came_of_each_save_is_told_once_and_in_order() -> None:
    """Also of one that is over while how far it was is on its way; how things are comes last."""
    for moments in when(4):
        saver = Saver()
        reports = Reports(saver)  # type: ignore[arg-type]
        changes: list[Change] = [
            partial(saver.now.begin, 1, 0),
            partial(saver.over, 1, True),
            partial(saver.over, 2, False),
            partial(saver.now.begin, 3, 0),
        ]
        told = told_by(
            partial(reports.due, 0.0), partial(reports.sent, 0.0), "step", Playing(changes, moments)
        )
        ends = [one for one in told if one[0] in ("done", "failed")]
        assert ends == [("done", 1), ("failed", 2)], moments
        assert told[-1] == ("staging", 3), moments


def test_a_save_whose_outcome_was_told_is_in_work_no_more() -> None:
    """Its thread may not have come to say so: then the next word would be that it goes on."""
    saver = Saver()
    reports = Reports(saver)  # type: ignore[arg-type]
    now_s = 0.0

    def due() -> dict[str, Any] | None:
        nonlocal now_s
        now_s += 10.0  # longer than between two words on one save
        return reports.due(now_s)

    saver.now.begin(1, 7)
    assert due() is not None
    reports.sent(now_s)
    saver.on_outcome[0](Outcome(True, 1, 7, "", ""))
    told = told_by(due, lambda: reports.sent(now_s), "step")
    saver.now.enter("done")
    saver.now.begin(2, 0)
    told += told_by(due, lambda: reports.sent(now_s), "step")[:1]
    assert told == [("done", 1), ("idle", 0), ("staging", 2)]


def test_what_came_of_a_save_is_known_before_the_save_is_seen_to_be_over(tmp_path: Path) -> None:
    """Whoever sees that a rank is in no save any more asks what came of the last one."""
    saver = Checkpointer(state={"model": torch.nn.Linear(2, 2)}, dir=tmp_path)
    phases: list[str] = []
    saver.on_outcome.append(lambda outcome: phases.append(saver.progress().phase))
    saver.save(1)
    saver.wait()
    assert set(phases) <= IN_WORK
    assert saver.progress().phase == "done"
