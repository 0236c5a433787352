"""Several ranks that follow requests, each with its training thread, over one store of torch's."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from rankscope.agent.checkpoint import Checkpointer
from rankscope.agent.control import round as rounds
from rankscope.agent.control.control import Control
from rankscope.protocol import checkpoints
from support.wire import wait_until

_prefixes = itertools.count()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy with other things two seconds are short."""
    monkeypatch.setattr(rounds, "HOLD_S", 30.0)


class Rank(threading.Thread):
    """Trains in step with the others until it is told to stop, or the test is over."""

    def __init__(self, number: int, ranks: int, store: Any, prefix: str) -> None:
        super().__init__(daemon=True)
        self.others: list[Rank] = []
        self.steps = 0
        self.control = Control(0, prefix, lambda: (number, ranks), lambda: store)
        self.halt = threading.Event()
        self.over = False
        """Its loop has ended. Threads begin when they like: one that has not yet is waited for."""
        self.stuck = False
        self.looks = True
        self.number = number

    def run(self) -> None:
        try:
            self._train()
        finally:
            self.over = True

    def _train(self) -> None:
        while not self.halt.wait(0.002):
            if self.stuck or any(o.steps < self.steps and not o.over for o in self.others):
                continue  # as in a collective
            self.steps += 1
            if not self.control.boundary() and self.looks:
                return

    @property
    def phase(self) -> str:
        return self.control.now(time.monotonic()).phase

    def ends(self) -> list[tuple[str, str]]:
        """What came of each request: command and phase."""
        return [(one.request.command, one.phase) for one in self.control.turns.ended]


Launch = Callable[[int], list[Rank]]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """``launch(n)``: n ranks that train."""
    begun: list[Rank] = []

    def begin(count: int) -> list[Rank]:
        store, prefix = HashStore(), f"c{next(_prefixes)}"
        ranks = [Rank(number, count, store, prefix) for number in range(count)]
        begun.extend(ranks)
        for rank in ranks:
            rank.others = ranks
            rank.start()
        until(lambda: all(rank.control.completed for rank in ranks), "a step of every rank")
        return ranks

    yield begin
    for rank in begun:
        rank.halt.set()
        rank.control.close("has ended")
    for rank in begun:
        rank.join(30)
        assert not rank.is_alive()


def until(condition: Callable[[], Any], what: str) -> None:
    wait_until(lambda: condition() or None, what, 60)


def order(ranks: list[Rank], command: str, number: int, **more: Any) -> None:
    for rank in ranks:
        rank.control.ordered(command, number, 60.0, "ada", **more)


def test_a_pause_holds_all_ranks_after_the_same_step_until_one_hears_of_its_end(
    launch: Launch,
) -> None:
    """Who resumes need not reach every rank."""
    ranks = launch(3)
    order(ranks, "pause", 1)
    until(lambda: all(rank.phase == "paused" for rank in ranks), "all ranks paused")
    steps = {rank.control.completed for rank in ranks}
    assert len(steps) == 1
    step = steps.pop()
    assert {rank.control.now(0.0).boundary for rank in ranks} == {step}
    order(ranks[2:], "resume", 2, target=1)
    until(lambda: min(rank.control.completed for rank in ranks) > step, "all go on")
    until(lambda: all(rank.ends() == [("pause", "done")] for rank in ranks), "word of its end")
    assert "resumed by ada" in ranks[0].control.turns.ended[0].text


def test_a_pause_that_nobody_ends_ends_by_itself(launch: Launch) -> None:
    """After the time that was asked for."""
    ranks = launch(2)
    order(ranks, "pause", 1, lasts_s=0.6)
    until(lambda: all(rank.ends() == [("pause", "done")] for rank in ranks), "its end")
    assert "nobody resumed it" in ranks[0].control.turns.ended[0].text


def test_a_stop_reaches_all_loops_after_the_same_step(launch: Launch) -> None:
    """Also one that does not look: it is told how far it has gone on."""
    ranks = launch(3)
    ranks[1].looks = False
    order(ranks, "stop", 1)
    until(lambda: not ranks[0].is_alive() and not ranks[2].is_alive(), "the loops that look")
    until(lambda: ranks[1].control.overrun > 2, "the one that does not")
    assert len({rank.control.stop_step for rank in ranks}) == 1
    assert ranks[0].control.completed == ranks[0].control.stop_step


def test_requests_heard_in_any_order_are_followed_in_one(launch: Launch) -> None:
    """Each rank goes through the same turns."""
    ranks = launch(3)
    for rank in ranks:
        mine = [(1, "pause"), (2, "pause"), (3, "pause")]
        for number, command in mine[rank.number :] + mine[: rank.number]:
            rank.control.ordered(command, number, 60.0, "ada", lasts_s=0.05)
    until(lambda: all(len(rank.ends()) == 3 for rank in ranks), "all three requests")
    orders = [[one.request.number for one in rank.control.turns.ended] for rank in ranks]
    assert orders[0] == orders[1] == orders[2]
    steps = [[one.boundary for one in rank.control.turns.ended] for rank in ranks]
    assert steps[0] == steps[1] == steps[2]


def test_a_request_that_is_cancelled_before_all_have_heard_of_it_is_given_up_everywhere(
    launch: Launch,
) -> None:
    """Training is not held; a rank that hears of it later does nothing; the next one works."""
    ranks = launch(3)
    order(ranks[:2], "stop", 1)
    until(lambda: {rank.phase for rank in ranks[:2]} == {"waiting"}, "two ranks that have heard")
    order(ranks, "cancel", 2, target=1)
    order(ranks[2:], "stop", 1)
    until(lambda: all(rank.ends() == [("stop", "cancelled")] for rank in ranks[:2]), "its end")
    order(ranks, "pause", 3, lasts_s=0.05)
    until(lambda: all(("pause", "done") in rank.ends() for rank in ranks), "the next request")
    assert not any(rank.control.stop_step for rank in ranks)


def test_a_signal_on_one_rank_or_on_all_is_one_request(launch: Launch) -> None:
    """Without a hub; a pause that an operator wanted gives way to it."""
    ranks = launch(3)
    for rank in ranks:
        rank.control.listen()
    order(ranks, "pause", 7_000_000_000)
    until(lambda: {rank.phase for rank in ranks} == {"paused"}, "all ranks paused")
    for rank in ranks[1:]:
        rank.control.ring(10, "SIGUSR1")
    until(lambda: not any(rank.is_alive() for rank in ranks), "all loops stop")
    assert len({rank.control.stop_step for rank in ranks}) == 1
    assert all(rank.ends() == [("pause", "done"), ("stop", "done")] for rank in ranks)
    assert all(rank.control.obeys for rank in ranks)


def alone(launch: Launch, directory: Path, **saver: Any) -> tuple[Rank, Checkpointer]:
    (rank,) = launch(1)
    model = torch.nn.Linear(4, 4)
    saving = Checkpointer(state={"model": model}, dir=directory, **saver)
    rank.control.save_with(saving)
    return rank, saving


def test_a_checkpoint_and_stop_stops_at_the_step_that_was_saved(
    launch: Launch, tmp_path: Path
) -> None:
    """And not before the checkpoint is out, which is written in a hurry: training stands still."""
    rank, saving = alone(launch, tmp_path)
    hurried: list[bool] = []

    def on_phase(phase: str, step: int) -> None:
        if phase == "writing":
            hurried.append(bool(saving._jobs) and saving._jobs[-1].hurry.wait(30))

    saving.on_phase.append(on_phase)
    order([rank], "checkpoint-and-stop", 1)
    until(lambda: not rank.is_alive(), "the loop stops")
    (found,), _ = checkpoints.find(tmp_path)
    assert found.step == rank.control.stop_step == rank.control.completed
    assert hurried == [True]
    assert checkpoints.verify(tmp_path / found.name).state == "complete"


def test_a_save_that_fails_or_is_cancelled_stops_nothing(launch: Launch, tmp_path: Path) -> None:
    """Training goes on, and says why."""
    rank, saving = alone(launch, tmp_path)
    fails = threading.Event()
    there = threading.Event()

    def on_phase(phase: str, step: int) -> None:
        if phase == "writing" and not fails.is_set():
            fails.set()
            raise OSError(28, "No space left on device")
        if phase == "writing":
            there.set()
            deadline = time.monotonic() + 30
            while not rank.control.turns.cancelled and time.monotonic() < deadline:
                time.sleep(0.01)

    saving.on_phase.append(on_phase)
    order([rank], "checkpoint-and-stop", 1)
    until(lambda: rank.ends() == [("checkpoint-and-stop", "given-up")], "its end")
    assert "No space left on device" in rank.control.turns.ended[0].text
    order([rank], "checkpoint-and-stop", 2)
    until(there.is_set, "the second save")
    assert rank.phase == "saving"
    order([rank], "cancel", 3, target=2)
    until(lambda: rank.ends()[1:] == [("checkpoint-and-stop", "cancelled")], "its end")
    assert rank.control.stop_step == 0
    assert checkpoints.find(tmp_path) == ([], [])
    before = rank.control.completed
    until(lambda: rank.control.completed > before, "training goes on")


def savers(ranks: list[Rank], directory: Path) -> list[Checkpointer]:
    """One for each of these ranks, which are one process and so no world for a Checkpointer."""
    made = []
    for rank in ranks:
        model = torch.nn.Linear(4, 4)
        saver = Checkpointer(state={"model": model}, dir=directory / str(rank.number))
        rank.control.save_with(saver)
        made.append(saver)
    return made


@pytest.mark.parametrize("stuck", [0, 1])
def test_a_save_that_is_agreed_on_is_cancelled_whichever_rank_is_stuck(
    launch: Launch, tmp_path: Path, stuck: int
) -> None:
    """At once, also on the rank that cannot come to the boundary; it makes none when it does."""
    ranks = launch(2)
    savers(ranks, tmp_path)
    ranks[stuck].stuck = True
    until(lambda: ranks[1 - stuck].steps > ranks[stuck].steps, "the other one waits for it")
    order(ranks, "checkpoint", 1)
    until(lambda: ranks[stuck].phase == "agreed", "a step that is agreed on")
    assert ranks[stuck].ends() == []
    order(ranks, "cancel", 2, target=1)
    until(lambda: ("checkpoint", "cancelled") in ranks[stuck].ends(), "word of its end")
    assert ranks[stuck].phase == "idle"
    ranks[stuck].stuck = False
    order(ranks, "pause", 3, lasts_s=0.05)
    until(lambda: all(("pause", "done") in rank.ends() for rank in ranks), "the next request")
    assert ("checkpoint", "done") not in ranks[stuck].ends()
    assert checkpoints.find(tmp_path / str(stuck)) == ([], [])


def pause(ranks: list[Rank]) -> int:
    """The step after which all of them stand."""
    order(ranks, "pause", 1)
    until(lambda: all(rank.phase == "paused" for rank in ranks), "all ranks paused")
    return ranks[0].control.completed


def test_what_is_asked_for_while_the_ranks_stand_is_done_where_they_stand(
    launch: Launch, tmp_path: Path
) -> None:
    """By all of them in one order, whoever has heard of it; the pause goes on, and ends as ever."""
    ranks = launch(3)
    saved = savers(ranks, tmp_path)
    step = pause(ranks)
    order(ranks[1:2], "checkpoint", 2)
    order(ranks, "checkpoint", 3)
    until(lambda: all(len(rank.ends()) == 2 for rank in ranks), "both saves")
    orders = [[one.request.number for one in rank.control.turns.ended] for rank in ranks]
    assert sorted(orders[0]) == [2, 3]
    assert orders == [orders[0]] * 3
    last = orders[0][-1]
    until(lambda: all(saver.last and saver.last.request == last for saver in saved), "an outcome")
    assert all(saver.last is not None and saver.last.ok for saver in saved)
    assert {rank.phase for rank in ranks} == {"paused"}
    assert {rank.control.completed for rank in ranks} == {step}
    for rank in ranks:
        found, _ = checkpoints.find(tmp_path / str(rank.number))
        assert [one.step for one in found] == [step, step]
    order(ranks[:1], "resume", 4, target=1)
    until(lambda: min(rank.control.completed for rank in ranks) > step, "all go on")


@pytest.mark.parametrize("command", ["stop", "checkpoint-and-stop"])
def test_a_run_that_stands_stops_without_another_step(
    launch: Launch, tmp_path: Path, command: str
) -> None:
    """All of it, by what one rank has heard."""
    ranks = launch(3)
    savers(ranks, tmp_path)
    step = pause(ranks)
    order(ranks[2:], command, 2)
    until(lambda: not any(rank.is_alive() for rank in ranks), "the end of all loops")
    assert {rank.control.stop_step for rank in ranks} == {step}
    for rank in ranks:
        assert rank.ends() == [(command, "done"), ("pause", "done")]
        assert f"ended by the {command} of ada" in rank.control.turns.ended[1].text
        found, _ = checkpoints.find(tmp_path / str(rank.number))
        assert [one.step for one in found] == ([step] if command != "stop" else [])


def test_a_save_that_fails_while_the_ranks_stand_leaves_them_standing(
    launch: Launch, tmp_path: Path
) -> None:
    """They neither stop nor go on, and what is asked for next is done."""
    ranks = launch(2)
    saved = savers(ranks, tmp_path)
    step = pause(ranks)

    def refuse(phase: str, step: int) -> None:
        raise OSError("the disk is away")

    for saver in saved:
        saver.on_phase.append(refuse)
    order(ranks, "checkpoint-and-stop", 2)
    given_up = [("checkpoint-and-stop", "given-up")]
    until(lambda: all(rank.ends() == given_up for rank in ranks), "word of it")
    assert "paused still" in ranks[0].control.turns.ended[0].text
    assert {rank.phase for rank in ranks} == {"paused"}
    for saver in saved:
        saver.on_phase.remove(refuse)
    order(ranks, "checkpoint-and-stop", 3)
    until(lambda: not any(rank.is_alive() for rank in ranks), "the end of all loops")
    assert {rank.control.stop_step for rank in ranks} == {step}


def test_ranks_that_do_not_call_end_step_equally_often_are_not_hung(launch: Launch) -> None:
    """The request is void, in words; both go on."""
    ranks = launch(2)
    ranks[1].control.completed += 500
    order(ranks, "stop", 1)
    until(lambda: all(rank.ends() == [("stop", "given-up")] for rank in ranks), "its end")
    assert "end_step equally often" in ranks[0].control.turns.ended[0].text


def test_a_store_that_is_gone_costs_the_request_alone() -> None:
    """Training is not held, and what came of it is said."""

    def gone() -> Any:
        raise ConnectionError("the store is gone")

    control = Control(0, "gone", lambda: (0, 2), gone)
    control.boundary()
    control.ordered("stop", 1, 60.0, "ada")
    until(lambda: control.turns.ended, "its end")
    assert control.boundary()
    assert "the store is gone" in control.turns.ended[0].text
    control.close("has ended")
