"""The small parts that screens are made of."""

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import msgspec
import pytest

from rankscope.protocol.shapes import Checkpoint, Resumed
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.bottom import state_line
from rankscope.tui.dashboard.render.grid import plan
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    clip,
    first_that_fit,
    fit,
    left,
    line,
    paragraph,
    plain,
    right,
    spread,
    text_of,
    width_of,
    wrap,
)
from rankscope.tui.dashboard.render.nodes import fleet, node_details
from rankscope.tui.dashboard.render.numbers import number_lines, phase_line
from rankscope.tui.dashboard.render.sparkline import by_bucket, chart, sparkline
from rankscope.tui.dashboard.render.table import Column, columns_that_fit
from rankscope.tui.dashboard.render.title import title_line
from rankscope.tui.dashboard.terminal import shows_utf8
from rankscope.tui.dashboard.widgets.canvas import changed_span
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import marks_of
from support.scenes import SCENES, healthy_8, run


@pytest.mark.parametrize("place", [left, right, clip])
def test_wide_characters_do_not_break_a_column(place: Callable[[str, int], str]) -> None:
    """A host name in wide characters takes its cells, not its characters."""
    for width in range(1, 12):
        assert width_of(place("計算機-12 ノード", width)) <= width


def test_a_cut_is_shown() -> None:
    """What does not fit ends in an ellipsis, what does is left alone."""
    assert clip("backward", 8) == "backward"
    assert clip("backward", 6) == "backw…"


def test_the_right_side_survives_and_the_left_gives_way() -> None:
    """A narrow title loses its middle, not the age of the data."""
    shown = text_of(spread(line("a long name of a run"), line("● live"), 16))
    assert shown == "a long na…● live"


def test_parts_are_dropped_whole_from_the_right() -> None:
    """Half a number would be a wrong number."""
    parts = [line("step 12"), line("6.13 step/s"), line("loss 2.31")]
    assert text_of(first_that_fit(parts, 21)) == "step 12  6.13 step/s"


def test_wrapping_clips_what_does_not_fit_in_its_lines() -> None:
    """A long headline ends visibly cut."""
    assert wrap("one two three four five", 9, 2) == ["one two", "three fo…"]
    assert wrap("", 9, 2) == []


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x9b2J", "a\nb", "\x07", "\u202egpj.exe", "\x00"])
def test_nothing_a_terminal_acts_upon_gets_through(evil: str) -> None:
    """Host names and messages come from other machines: escapes in them are blanks."""
    assert all(char.isprintable() for char in plain(evil))


def test_a_sparkline_spans_its_extremes_and_shows_what_is_not_a_number() -> None:
    """The lowest and the highest bar, a cross for NaN, a blank for what is unknown."""
    assert sparkline([0.0, 1.0, math.nan, None, 0.5], 6) == "▁█✗ ▅ "


def test_noise_does_not_look_like_a_cliff() -> None:
    """Values that differ by less than 2 % are nearly one level."""
    assert set(sparkline([100.0, 100.1, 100.2], 3)) <= {"▁", "▂"}


def test_buckets_keep_what_matters_and_do_not_shift() -> None:
    """The slow step shows however many steps share a bar; a new step changes the last bar only."""
    steps = list(range(1, 101))
    times: list[float | None] = [0.1] * 100
    times[40] = 0.9
    first = by_bucket(steps, times, 30, max)
    assert max(value for value in first if value is not None) == 0.9
    again = by_bucket([*steps[:-1]], times[:-1], 30, max)
    assert first[:-1] == again[: len(first) - 1]


def test_one_nan_marks_its_bucket() -> None:
    """A mean must not hide the one step whose loss was not a number."""
    steps = list(range(12))
    loss: list[float | None] = [1.0] * 12
    loss[5] = math.nan
    assert any(math.isnan(v) for v in by_bucket(steps, loss, 4, fmean) if v is not None)


def test_a_chart_is_as_high_as_asked_and_as_wide() -> None:
    """Every line has the full width, the top one belongs to the largest value."""
    lines = chart([1.0, 2.0, 3.0], 8, 4)
    assert [len(each) for each in lines] == [8] * 4
    assert lines[0] == "  █     "
    assert lines[3].startswith("▁")


def test_a_narrow_table_drops_columns_from_the_right() -> None:
    """The first column stays whatever happens."""
    columns = [Column[int](name, 6, lambda row: Span(str(row))) for name in ("a", "b", "c")]
    assert [c.head for c in columns_that_fit(columns, 14)] == ["a", "b"]
    assert [c.head for c in columns_that_fit(columns, 3)] == ["a"]


NODES_8 = (("node-a", (0, 1, 2, 3)), ("node-b", (4, 5, 6, 7)))


def nodes(ranks: int, a_node: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (f"node-{first // a_node:04}", tuple(range(first, min(ranks, first + a_node))))
        for first in range(0, ranks, a_node)
    )


@pytest.mark.parametrize("ranks", [1, 2, 8, 64, 512, 4096, 16384])
@pytest.mark.parametrize("width", [30, 80, 200])
def test_every_rank_has_one_cell_and_all_fit_in_the_width(ranks: int, width: int) -> None:
    """Whatever the layout, nobody is left out, nobody stands twice, nobody stands outside."""
    grid = plan(nodes(ranks, 8), width, 14)
    cells = [(y, x, rank) for y, row in enumerate(grid.rows) for x, rank in row.cells]
    assert [rank for _, _, rank in cells] == list(range(ranks))
    assert len({(y, x) for y, x, _ in cells}) == ranks
    last = grid.number_width + 2 if grid.number_width else 1
    assert max(x for _, x, _ in cells) + last <= width


def test_few_ranks_are_spelled_out_and_many_are_packed() -> None:
    """8 ranks have their numbers, 512 on a small screen are glyphs in eights."""
    assert plan(NODES_8, 80, 14).kind == "spelled"
    assert plan(nodes(512, 8), 120, 20).kind == "named"
    assert plan(nodes(512, 8), 80, 12).kind == "packed"


def test_moving_up_and_down_in_the_grid_keeps_the_column() -> None:
    """The rank below is the one that stands below."""
    grid = plan(NODES_8, 80, 14)
    assert grid.above_or_below(1, 1) == 5
    assert grid.above_or_below(6, -1) == 2
    assert grid.above_or_below(6, 1) == 6


def test_marks_tell_the_culprit_from_its_victims() -> None:
    """After a death the one that died first is a cross, those that wait are not."""
    snapshot = SCENES["dead"]()
    assert snapshot.status is not None
    marks = marks_of(snapshot.status)
    assert (marks[2].glyph, marks[2].word, marks[2].tone) == ("✗", "SIGKILL", "bad")
    assert (marks[0].word, marks[0].tone) == ("waiting", "warn")
    assert marks[5].word == "suspect"


def test_a_healthy_rank_is_marked_with_what_it_does() -> None:
    """Nothing but its own words for a rank that no finding names."""
    snapshot = run(2, 2)
    assert snapshot.status is not None
    assert {mark.word for mark in marks_of(snapshot.status).values()} == {"backward"}


@pytest.mark.parametrize("width", [60, 79, 80, 100, 200])
@pytest.mark.parametrize("other_s", [0.0, 1.2])
def test_the_phase_line_has_a_number_for_each_name_and_its_unit(width: int, other_s: float) -> None:
    """However narrow: no name without its number, no number without its unit."""
    phase_s = {"data": 0.3, "forward": 0.051, "backward": 0.92, "optimizer": 0.017}
    if other_s:
        phase_s["other"] = other_s
    text = text_of(phase_line(phase_s, width))
    assert len(text) <= width
    assert text.endswith("ms")
    for name, number in re.findall(r"(data|forward|backward|optimizer|other)(\s+\d+)?", text):
        assert number.strip() == numbers.milliseconds(phase_s[name]), text


def test_a_recording_raises_no_alarm_over_its_sentinels() -> None:
    """Nothing watches a run that is over, and nothing should."""
    for scene, alarmed in (("recording", False), ("failed", False), ("healthy-2", True)):
        snapshot = SCENES[scene]()
        assert snapshot.overview is not None
        node = msgspec.structs.replace(snapshot.overview.nodes[0], sentinel="silent")
        overview = msgspec.structs.replace(snapshot.overview, nodes=[node])
        picture = Picture(replace(snapshot, overview=overview))
        shown = text_of(node_details(node, picture, 200)) + text_of(fleet(picture))
        assert ("sentinel" in shown) is alarmed


def test_an_ended_run_says_when_it_ended() -> None:
    """Live hub or recording, whenever one looks."""
    for scene in ("failed", "recording"):
        snapshot = SCENES[scene]()
        assert snapshot.overview is not None
        overview = msgspec.structs.replace(snapshot.overview, ended_s=1764432105.0)
        picture = Picture(replace(snapshot, overview=overview))
        when = time.strftime("ended %m-%d %H:%M", time.localtime(1764432105.0))
        assert when in text_of(title_line(picture, 80, 0.0))


def test_a_long_name_does_not_run_into_its_value() -> None:
    """A blank stands between them, whatever the width of the column."""
    (shown,) = paragraph(Span("torchelastic_run_id"), 13, "c7857ec4", 80)
    assert text_of(shown) == "  torchelasti… c7857ec4"


def test_a_job_that_reports_no_tokens_has_no_rate_of_them() -> None:
    """Standing still or not: a dash, not a zero."""
    for state in ("running", "stalled"):
        snapshot = run(2, 2, state=state, overview={"tokens_per_s": None})
        assert "– tok/s" in text_of(number_lines(snapshot.overview, 80)[0])


@pytest.mark.parametrize(
    ("environ", "utf8"),
    [
        ({"LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "C.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, True),
        ({"LANG": "en_US.ISO-8859-1"}, False),
        ({}, False),
    ],
)
def test_the_locale_decides_on_glyphs(environ: dict[str, str], utf8: bool) -> None:
    """LC_ALL before LC_CTYPE before LANG; no locale at all means ASCII."""
    assert shows_utf8(environ) is utf8


@pytest.mark.parametrize(
    ("old", "new", "span"),
    [
        (line("step 12"), line("step 13"), (6, 7)),
        (line("step 12"), line("step 12"), (20, 20)),
        (line("a"), line("a", Span("b", "bad")), (1, 2)),
        (line(Span("a", "good")), line(Span("a", "bad")), (0, 1)),
        (line("計 1"), line("計 2"), (0, 20)),
        ((), line("x"), (0, 1)),
    ],
)
def test_only_what_changed_is_sent(old: Line, new: Line, span: tuple[int, int]) -> None:
    """The span from the first to the last differing cell, colour included."""
    assert changed_span(old, new, 20) == span


def test_fitting_keeps_styles() -> None:
    """A cut line is still coloured as it was."""
    assert fit(line(Span("abc", "bad"), "def"), 5) == (Span("abc", "bad"), Span("d…"))


def test_a_rank_that_has_ended_is_in_its_last_phase_for_no_time() -> None:
    """How long that had lasted is no age of its end; that of a living rank is how long it waits."""
    for scene, aged in (("dead", False), ("stopped", True)):
        snapshot = SCENES[scene]()
        assert snapshot.overview is not None
        text = text_of(node_details(snapshot.overview.nodes[0], Picture(snapshot), 200))
        assert ("42 s" in text) is aged, text


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("resumed", [None, Resumed(11000, "/y")])
@pytest.mark.parametrize(
    "saved",
    [
        None,
        Checkpoint(12000, "/x", True),
        Checkpoint(12000, "/x", False),
        Checkpoint(12000, "/x", True, resumed=True),
        Checkpoint(12000, "/x", True, notfinite="it holds NaN: w", finite_step=11000),
        Checkpoint(12000, "/x", False, resumed=True, notfinite="it holds Inf: w"),
    ],
)
def test_nothing_on_the_line_of_the_checkpoint_is_cut_at_its_end(
    saved: Checkpoint | None, resumed: Resumed | None, width: int
) -> None:
    """What has no room is left out whole; the checkpoint and what is wrong with it goes first."""
    snapshot = healthy_8()
    assert snapshot.overview is not None
    overview = msgspec.structs.replace(snapshot.overview, last_checkpoint=saved, resumed=resumed)
    text = text_of(state_line(Picture(replace(snapshot, overview=overview)), width))
    assert "…" not in text
    assert ("not verified" in text) == (saved is not None and not saved.verified)
    if saved is not None and saved.notfinite:
        assert f", {saved.notfinite[3:12]}" in text
