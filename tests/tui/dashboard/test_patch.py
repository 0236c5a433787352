"""What is sent to the terminal to go from one picture to the next."""

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.tui.dashboard.render.line import Line, Span, StyleName, line
from rankscope.tui.dashboard.widgets.patch import Pen, patch

WIDTH, HEIGHT = 30, 4
STYLES: tuple[StyleName, ...] = ("", "dim", "good", "bad", "cursor", "bad_block")

lines = st.lists(
    st.lists(
        st.builds(Span, st.text(" ab●─", max_size=12), st.sampled_from(STYLES)), max_size=4
    ).map(tuple),
    max_size=HEIGHT,
)


def screen_of(*sent: str) -> list[list[tuple[str, object, object, object]]]:
    """What a terminal shows after it was sent these."""
    screen = pyte.Screen(WIDTH, HEIGHT)
    screen.set_mode(pyte.modes.LNM)
    stream = pyte.Stream(screen)
    for each in sent:
        stream.feed(each)
    return [
        [
            # A blank looks the same in any colour unless it is reversed.
            (cell.data, cell.reverse, *((None, None) if _blank(cell) else (cell.fg, cell.bold)))
            for cell in (screen.buffer[y][x] for x in range(WIDTH))
        ]
        for y in range(HEIGHT)
    ]


def _blank(cell: pyte.screens.Char) -> bool:
    return bool(cell.data == " " and not cell.reverse)


def cut(picture: list[Line]) -> list[Line]:
    """Lines no wider than the screen, as screens give them."""
    kept = []
    for each in picture:
        room, spans = WIDTH, []
        for span in each:
            spans.append(span._replace(text=span.text[:room]))
            room -= len(spans[-1].text)
        kept.append(tuple(spans))
    return kept


@given(lines, lines)
def test_a_patch_makes_the_terminal_show_the_next_picture(
    before: list[Line], after: list[Line]
) -> None:
    """Whatever two pictures are, the cells that were sent make one into the other."""
    before, after = cut(before), cut(after)
    first = patch([], before, WIDTH, HEIGHT, Pen())
    second = patch(before, after, WIDTH, HEIGHT, Pen())
    assert screen_of(first, second) == screen_of(patch([], after, WIDTH, HEIGHT, Pen()))


def test_equal_pictures_send_nothing() -> None:
    """A calm screen costs nothing."""
    picture = [line("step 12", Span(" ●", "good"))]
    assert patch(picture, list(picture), WIDTH, HEIGHT, Pen()) == ""


def test_a_changed_digit_sends_a_few_bytes() -> None:
    """The cursor's way there and the digit."""
    before, after = [line("step 12 of many more")], [line("step 13 of many more")]
    assert patch(before, after, WIDTH, HEIGHT, Pen()) == "\x1b[1;7H3"


def test_two_cells_far_apart_are_sent_without_what_is_between() -> None:
    """What did not change is passed over."""
    before, after = [line("1" + " same " * 4 + "1")], [line("2" + " same " * 4 + "2")]
    assert patch(before, after, WIDTH, HEIGHT, Pen()) == "\x1b[1;1H2\x1b[24C2"


def test_a_line_that_became_shorter_is_erased_to_its_end() -> None:
    """Blanks are not sent one by one."""
    assert patch([line("a long line")], [line("a")], WIDTH, HEIGHT, Pen()) == "\x1b[1;3H\x1b[K"


def test_attributes_are_reset_at_the_end() -> None:
    """Whoever writes next finds the terminal plain."""
    sent = patch([], [line(Span("bad", "bad"))], WIDTH, HEIGHT, Pen())
    assert sent == "\x1b[1;1H\x1b[0;1;31mbad\x1b[0m"


@pytest.mark.parametrize(
    ("pen", "sent"),
    [
        (Pen(colour=False), "\x1b[1;1H\x1b[0;1m✗\x1b[0m"),
        (Pen(utf8=False), "\x1b[1;1H\x1b[0;1;31mX\x1b[0m"),
    ],
)
def test_a_poor_terminal_gets_no_colour_or_no_glyph(pen: Pen, sent: str) -> None:
    """NO_COLOR and a locale without UTF-8 hold for what is sent past Textual, too."""
    assert patch([], [line(Span("✗", "bad"))], WIDTH, HEIGHT, pen) == sent


def test_a_line_with_wide_characters_is_sent_whole() -> None:
    """Columns cannot be counted in it: it is erased and written anew."""
    sent = patch([line("ab")], [line("日本 c")], WIDTH, HEIGHT, Pen())
    assert sent == "\x1b[1;1H\x1b[K日本 c"


def test_control_characters_are_never_sent() -> None:
    """A host name from elsewhere cannot act upon the terminal."""
    assert "\x1b[2J" not in patch([], [line("a\x1b[2Jb")], WIDTH, HEIGHT, Pen())
