"""Filters, orders, questions and what is typed: the pure parts behind the keys."""

import threading
from dataclasses import replace

import msgspec
import pytest

from rankscope.protocol import messages as m
from rankscope.protocol import shapes as s
from rankscope.protocol.exits import UserError
from rankscope.tui.dashboard.control import Control, over
from rankscope.tui.dashboard.filtering import parsed
from rankscope.tui.dashboard.ordering import ORDERS, following, ordered
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import line, text_of, width_of
from rankscope.tui.dashboard.render.title import title_line
from rankscope.tui.dashboard.screens.offers import LOCKED, OVER
from rankscope.tui.dashboard.typed import MOST, Typed
from rankscope.tui.feed.client import Reply
from rankscope.tui.feed.commander import Commander, Word, came_of
from rankscope.tui.words.commands import QUESTIONS, consequences, in_short
from support.scenes import SCENES, pages, row, views


@pytest.mark.parametrize(
    ("words", "text", "rank", "admitted"),
    [
        ("", "anything", 3, True),
        ("node-a", "Node-A backward", 3, True),
        ("node-a stopped", "node-a backward", 3, False),
        ("3", "node-a", 3, True),
        ("3", "node-3", 13, False),
        ("2-4", "node-a", 4, True),
        ("2-4 9", "node-a", 9, True),
        ("2-4 back", "node-a backward", 3, True),
        ("12", "step 12 took", None, True),
        ("12", "step 123 took", None, False),
        ("4-2", "node-a", 3, False),
    ],
)
def test_words_must_be_there_and_numbers_are_ranks(
    words: str, text: str, rank: int | None, admitted: bool
) -> None:
    """In whatever case and order; of a line that is of no rank a number stands in it."""
    assert parsed(words).admits(text, rank) is admitted


def test_what_is_typed_can_be_corrected_and_has_an_end() -> None:
    """Backspace in an empty line drops it; what cannot be printed is not taken."""
    typed = Typed()
    for key in "ab":
        assert typed.key(key, key) == "typing"
    typed.key("left", None)
    typed.paste("c\x1b[2J\n")
    assert typed.text == "abc[2J"
    typed.key("backspace", None)
    assert typed.text == "abc[2"
    typed.key("ctrl+u", None)
    assert (typed.text, typed.key("backspace", None)) == ("", "dropped")
    typed.paste("x" * 500)
    assert len(typed.text) == MOST
    assert typed.key("enter", "\r") == "done"
    assert typed.key("escape", None) == "dropped"


def test_each_order_puts_what_is_worth_a_look_first() -> None:
    """Trouble, the step furthest behind, the largest, what is not finite."""
    picture = Picture(SCENES["stopped"]())
    rows = [
        row(0, "a", step=12, loss=1.0, step_s=0.2, heard_s=0.1),
        row(1, "a", step=10, loss=float("nan"), step_s=None, heard_s=9.0),
        row(2, "a", step=12, loss=2.0, step_s=0.4, heard_s=0.1),
    ]
    all_ = range(len(rows))
    first = {order: ordered(rows, all_, order, picture)[0] for order in ORDERS}
    assert first["rank"] == 0
    assert first["state"] == 1
    assert first["in step"] == 1
    assert first["loss"] == 1
    assert first["a step"] == 2
    assert first["heard"] == 1
    assert ordered(rows, all_, "a step", picture) == [2, 0, 1]


def test_orders_come_around() -> None:
    """Each once."""
    seen = [ORDERS[0]]
    while (order := following(seen[-1])) != ORDERS[0]:
        seen.append(order)
    assert tuple(seen) == ORDERS


def control(**options: object) -> Control:
    return Control(**({"allowed": True, "why_not": "only looks"} | options))  # type: ignore[arg-type]


HEALTHY = Picture(SCENES["healthy-8"]())


def test_nothing_is_given_while_it_is_locked_or_may_not_be() -> None:
    """Each time the reason is told, and no question is asked."""
    assert control().ask("stop", HEALTHY) == LOCKED
    assert control(allowed=False, unlocked=True).ask("stop", HEALTHY) == "only looks"
    assert control(allowed=False).toggle(HEALTHY) == "only looks"
    ended = Picture(SCENES["finished"]())
    assert control(unlocked=True).ask("stop", ended) == OVER
    assert control().question == ""


def test_only_y_gives_a_command_and_it_is_given_once() -> None:
    """Other keys leave the question where it is; n, q and Esc take it away."""
    one = control(unlocked=True)
    assert one.ask("stop", HEALTHY) == ""
    assert one.answer("enter") is None
    assert one.answer("s") is None
    assert one.question == "stop"
    assert one.answer("y") == "stop"
    assert one.question == ""
    for key in ("n", "q", "escape"):
        one.ask("pause", HEALTHY)
        assert one.answer(key) == ""
        assert one.question == ""


def test_unlocking_is_asked_about_and_locking_is_not() -> None:
    """The harmless way needs no question."""
    one = control()
    assert one.toggle(HEALTHY) == ""
    assert one.question == "unlock"
    assert one.answer("y") == ""
    assert one.unlocked
    assert "locked again" in one.toggle(HEALTHY)
    assert not one.unlocked


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("width", [20, 80, 200])
def test_a_question_says_what_will_happen_and_fits(name: str, width: int) -> None:
    """Which keys answer stands below it; the verdict above stays in sight."""
    one = control(unlocked=True)
    one.question = name
    picture = Picture(pages.shown(views.no_checkpoints(), SCENES["healthy-8"]()))
    band = one.lines(picture, width)
    assert all(width_of(each) <= width for each in band)
    shown = over([line(f"line {y}") for y in range(24)], band, 24)
    assert len(shown) == 24
    text = " ".join(text_of(each) for each in shown)
    assert "line 0" in text
    assert "y yes" in text
    if width == 80 and name != "unlock":
        assert "would be refused: rank 0 gave no boundary" in " ".join(text.split())


def test_what_would_be_lost_is_said_before_a_stop() -> None:
    """Since the newest checkpoint; or all of it."""
    status = SCENES["healthy-8"]().status
    assert status is not None
    told = " ".join(consequences("stop", status))
    assert "All 8 ranks end their loop at the same step, about step 12 482" in told
    assert "the 480 steps since checkpoint 12 000 are lost" in " ".join(told.split())
    bare = msgspec.structs.replace(status, last_checkpoint=None, world_size=2)
    assert "Both ranks" in " ".join(consequences("stop", bare))
    assert "There is no checkpoint" in " ".join(consequences("stop", bare))


def test_what_came_of_a_request_is_found_in_the_view() -> None:
    """None while it is in work; a pause that stands is all that was asked for."""
    view = views.checkpoints_view(saving=True)
    assert came_of(view, 7) is None
    done = views.checkpoints_view(failed=True)
    assert came_of(done, 7) == f"checkpoint given up: {views.FAILED_TEXT}"
    paused = views.command("pause", "paused", "all stand", step=412)
    assert came_of(msgspec.structs.replace(view, command=paused), 7) == "paused after step 412"
    saved = msgspec.structs.replace(
        view, command=None, request=0, outcomes=[views.outcome(12480, 1.0, request=7)]
    )
    told = "checkpoint of step 12480 verified: /data/runs/gpt/step-00012480"
    assert came_of(saved, 7) == told
    over = views.command("checkpoint", "done", "checkpoint of step 12480 is complete: …")
    assert came_of(msgspec.structs.replace(saved, commands=[over]), 7) == told


class Hub:
    """Answers as it was told to; ``fails`` is raised in place of an answer."""

    def __init__(self, accepted: bool, fails: Exception | None = None) -> None:
        self.accepted, self.fails = accepted, fails
        self.given: list[str] = []

    def __enter__(self) -> "Hub":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, view: str) -> Reply:
        body = views.checkpoints_view(failed=True)
        return Reply(view, 1, 0.0, True, body)

    def command(self, name: str, *, author: str) -> m.CommandReply:
        self.given.append(f"{author}: {name}")
        if self.fails is not None:
            raise self.fails
        return m.CommandReply(1, self.accepted, "as you wish" if self.accepted else "no", 7)


@pytest.mark.parametrize(
    ("hub", "stages"),
    [
        (Hub(True), ["accepted", "over"]),
        (Hub(False), ["refused"]),
        (Hub(True, UserError("the hub went away")), ["lost"]),
        (Hub(True, RuntimeError("a bug")), ["lost"]),
    ],
)
def test_a_command_is_given_once_and_its_end_is_told(hub: Hub, stages: list[str]) -> None:
    """Whatever happens on the way, the user hears of it."""
    words: list[Word] = []
    ended = threading.Event()

    def tell(word: Word) -> None:
        words.append(word)
        if word.stage != "accepted":
            ended.set()

    Commander(lambda: hub, "ada@laptop").give("checkpoint", tell)
    assert ended.wait(30)
    assert [word.stage for word in words] == stages
    assert hub.given == ["ada@laptop: checkpoint"]


def test_a_dashboard_over_the_past_takes_no_commands() -> None:
    """They would act on a run that is elsewhere by now."""
    picture = Picture(SCENES["healthy-8"]())
    past = Picture(replace(picture.snapshot, past=object()))  # type: ignore[arg-type]
    assert "End goes back" in control(unlocked=True).ask("stop", past)


def test_the_gravest_ranks_come_first_by_state() -> None:
    """Then by number."""
    status = SCENES["dead"]().status
    assert isinstance(status, s.Status)
    picture = Picture(SCENES["dead"]())
    order = ordered(status.ranks, range(8), "state", picture)
    assert order[0] == 2
    assert order[-1] == 7


@pytest.mark.parametrize("name", ["", "gpt-stdlib"])
def test_which_run_it_is_stands_in_the_title_beside_unlocked_commands(name: str) -> None:
    """At 80 columns, whole: how old the run is gives way."""
    snapshot = SCENES["healthy-8"]()
    assert snapshot.overview is not None
    overview = msgspec.structs.replace(snapshot.overview, name=name)
    run = "20261129-163000-k3f9ab"
    shown = Picture(replace(snapshot, overview=overview), title=run)
    text = text_of(title_line(shown, 80, snapshot.taken_t_s, "commands unlocked"))
    assert (name or run) in text
    assert "commands unlocked" in text
    assert width_of(line(text)) <= 80


@pytest.mark.parametrize("command", ["checkpoint", "checkpoint-and-stop", "stop"])
def test_in_a_pause_the_list_of_commands_says_what_they_do_there(command: str) -> None:
    """No rank trains on, and none goes to another step."""
    status = SCENES["healthy-8"]().status
    assert status is not None
    assert in_short(command, status) == ""
    told = in_short(command, msgspec.structs.replace(status, state="paused"))
    assert "where they stand" in told
    assert "train on" not in told
