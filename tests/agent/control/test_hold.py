"""How a pause ends: by a word of anybody, by itself, or because a rank is no more."""

import itertools
import random
from typing import Any

from torch._C._distributed_c10d import HashStore

from rankscope.agent.control.control import Control
from rankscope.agent.control.hold import PULSE_S, SILENT_S, STOP, Hold, end_for_all
from rankscope.agent.control.request import CHECKPOINT, Request
from rankscope.agent.control.standing import Standing

_prefixes = itertools.count()


def holds(ranks: int, lasts_s: float = 1000.0) -> tuple[Any, list[Hold]]:
    prefix = f"h{next(_prefixes)}"
    return HashStore(), [Hold(prefix, n, ranks, 0.0, lasts_s, "it is over") for n in range(ranks)]


def play(store: Any, ranks: list[Hold], begin_s: float, end_s: float) -> None:
    """Time goes on, and these ranks look."""
    now_s = begin_s
    while now_s < end_s:
        for hold in ranks:
            hold.step(store, now_s)
        now_s += 0.5


def test_it_lasts_while_nobody_ends_it_and_all_are_there() -> None:
    """Then it ends by itself, on all ranks with one word."""
    store, ranks = holds(3, lasts_s=120.0)
    play(store, ranks, 0.0, 119.0)
    assert [hold.word for hold in ranks] == [""] * 3
    play(store, ranks, 119.0, 123.0)
    assert [hold.word for hold in ranks] == ["it is over"] * 3
    assert all(hold.over.is_set() for hold in ranks)


def test_what_the_ranks_take_while_one_is_torn_out_is_declined_there_like_all_else() -> None:
    """A signal's handler raises in the training thread; the other thread goes on meanwhile. What
    was raised stays what is raised, and nobody waits for this rank's part."""
    _, (hold,) = holds(1)
    control = Control(0, f"h{next(_prefixes)}", lambda: (0, 1), HashStore)
    standing = Standing(control, hold, 0)
    requests = [Request(number, CHECKPOINT, "ada") for number in (2, 3, 4)]
    hold.asked.extend(requests[:2])
    declined: list[int] = []

    def decline(request: Request, text: str) -> None:
        declined.append(request.number)
        if len(declined) == 1:
            hold.asked.append(requests[2])

    control.decline = decline  # type: ignore[method-assign]
    standing.leave("rank 0 has left it")
    assert declined == [2, 3, 4]
    assert [one.request.number for one in control.turns.ended] == [2, 3, 4]
    assert not hold.asked


def test_the_first_word_counts_for_all() -> None:
    """Whoever comes second obeys."""
    store, ranks = holds(3)
    play(store, ranks, 0.0, 3.0)
    ranks[1].end("resumed by ada")
    ranks[2].end("resumed by bob")
    play(store, ranks, 3.0, 6.0)
    assert [hold.word for hold in ranks] == ["resumed by ada"] * 3


def test_a_rank_that_falls_silent_ends_it_for_the_others() -> None:
    """They go on, and a launcher or a collective finds out about it."""
    store, ranks = holds(3)
    play(store, ranks, 0.0, 3.0)
    play(store, ranks[:2], 3.0, 3.0 + SILENT_S + 3 * PULSE_S)
    assert ranks[0].word == ranks[1].word
    assert ranks[0].word.startswith("rank 2 has said nothing for")


def test_a_run_that_was_stopped_as_a_whole_is_paused_still_when_it_goes_on() -> None:
    """No rank is silent that had no time to speak."""
    store, ranks = holds(2)
    play(store, ranks, 0.0, 5.0)
    play(store, ranks, 500.0, 505.0)
    assert [hold.word for hold in ranks] == ["", ""]


def test_one_ranks_word_stops_all_or_none() -> None:
    """Of a checkpoint and stop rank 0 knows what came of the save."""
    for word in (STOP, "the disk is full"):
        store, ranks = holds(2)
        told = [""]
        ranks[0].conclude = lambda told=told: told[0]
        play(store, ranks, 0.0, 5.0)
        assert [hold.word for hold in ranks] == ["", ""]
        told[0] = word
        play(store, ranks, 5.0, 8.0)
        assert [hold.word for hold in ranks] == [word] * 2


def test_without_the_store_it_ends_after_a_while_or_when_it_is_told_to() -> None:
    """An order reaches a rank without the store, too."""
    store, ranks = holds(2)
    play(store, ranks, 0.0, 2.0)
    lost = ConnectionError("gone")
    assert not ranks[0].fail(lost, 3.0)
    assert ranks[0].fail(lost, 3.0 + SILENT_S)
    assert "cannot be reached" in ranks[0].word
    ranks[1].end("resumed by ada")
    assert ranks[1].fail(lost, 4.0)
    assert ranks[1].word == "resumed by ada"


def test_what_is_asked_for_meanwhile_is_done_by_all_in_one_order_whoever_heard_of_it() -> None:
    """In two thousand random games of ranks that look when they do, hear of some of it, want it to
    end, and die: who leaves has saved the same as the others, and all stop or none does."""
    dice = random.Random(7)
    stops = saves = goes_on = 0
    for game in range(2000):
        world = dice.choice((1, 2, 3, 5))
        store, ranks = holds(world, lasts_s=dice.choice((30.0, 1000.0)))
        prefix = ranks[0]._prefix
        commands = ("checkpoint", "checkpoint", "checkpoint-and-stop", "stop")
        wants = [Request(n, dice.choice(commands), "ada") for n in range(dice.randint(0, 4))]
        heard = {n: dice.sample(wants, dice.randint(0, len(wants))) for n in range(world)}
        alive = list(ranks)
        now_s = 0.0
        while any(not hold.word for hold in alive) and now_s < 2000.0:
            now_s += dice.choice((0.01, 0.3, 2.0))
            hold = dice.choice(alive)
            mine = heard[ranks.index(hold)]
            if mine and dice.random() < 0.3 and hold.want is None:
                hold.want = mine.pop()
                if hold.want in hold.taken:
                    hold.want = None
            if dice.random() < 0.02:
                hold.end(f"resumed by {ranks.index(hold)}")
            if len(alive) > 1 and dice.random() < 0.01:
                alive.remove(hold)
                continue
            if dice.random() < 0.005:
                end_for_all(store, prefix, "a rank does not take part")
            hold.step(store, now_s)
        taken = [hold.taken for hold in alive]
        assert all(one == taken[0] for one in taken), game
        assert len({hold.word for hold in alive}) == 1, game
        stopped = any(one.command == "stop" for one in taken[0])
        assert (alive[0].word == STOP) == stopped
        assert len(taken[0]) == len({one.number for one in taken[0]})
        for hold in alive:
            made = [one for one in hold.taken if one.command != "stop"]
            assert list(hold.asked) == made
        stops, saves, goes_on = stops + stopped, saves + len(made), goes_on + (not stopped)
    assert min(stops, saves, goes_on) > 100
