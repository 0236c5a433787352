"""Esc and the next key, in one packet or far apart."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from textual.drivers import linux_driver
from textual.events import Key

from rankscope.tui.dashboard import console
from rankscope.tui.dashboard.actions import ACTIONS
from rankscope.tui.dashboard.escape import EscapeParser
from support.ranks import SyntheticRun
from support.terminal import Terminal
from support.wire import Hub, hub_process

RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))

NAMED = {
    "question_mark": "?",
    "exclamation_mark": "!",
    "colon": ":",
    "slash": "/",
    "space": " ",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "enter": "\r",
    "ctrl+c": "\x03",
    "ctrl+d": "\x04",
    "ctrl+l": "\x0c",
    "ctrl+p": "\x10",
    "ctrl+u": "\x15",
}
SEQUENCES = {"up": "\x1b[A", "down": "\x1bOB", "pageup": "\x1b[5~", "f1": "\x1bOP"}
KEYS = [key for action in ACTIONS for key in action.keys]
TYPED = {key: NAMED.get(key, key) for key in KEYS if len(NAMED.get(key, key)) == 1}


def keys_of(text: str, *, apart: bool = False) -> list[str]:
    """What is heard of ``text`` that comes in one packet (``apart``: one character at a time, each
    soon after the other), and nothing after it in time."""
    parser = EscapeParser()
    heard = [each for packet in (text if apart else [text]) for each in parser.feed(packet)]
    # Past its delay, without waiting for it.
    if parser._timeout_time is not None:
        parser._timeout_time = 0.0
        heard += list(parser.tick())
    return [each.key for each in heard if isinstance(each, Key)]


@pytest.mark.parametrize("key", sorted(TYPED))
def test_esc_and_a_key_in_one_packet_are_both_heard(key: str) -> None:
    """Whatever key it is, and whatever comes behind it."""
    assert keys_of(TYPED[key]) == [key]
    assert keys_of(f"\x1b{TYPED[key]}") == ["escape", key]
    assert keys_of(f"\x1b\x1b{TYPED[key]}") == ["escape", "escape", key]
    if key != "left_square_bracket":  # with more behind it, it begins the sequence of an arrow
        assert keys_of(f"\x1b{TYPED[key]}2j") == ["escape", key, "2", "j"]


@pytest.mark.parametrize("begun", ["[", "O"])
@pytest.mark.parametrize("apart", [True, False])
def test_esc_behind_what_could_begin_a_sequence_is_esc(begun: str, apart: bool) -> None:
    """Going back, a step in time, going back: in one packet, or faster than a sequence ends."""
    key = {"[": "left_square_bracket", "O": "O"}[begun]
    for text, heard in (
        (f"\x1b{begun}\x1b", ["escape", key, "escape"]),
        (f"\x1b{begun}\x1b{begun}\x1bq", ["escape", key, "escape", key, "escape", "q"]),
        (f"^\x1b{begun}\x1b^", ["circumflex_accent", "escape", key, "escape", "circumflex_accent"]),
        (f"\x1b{begun}\x1b[A", ["escape", key, "up"]),
    ):
        assert keys_of(text, apart=apart) == heard


@pytest.mark.parametrize("key", sorted(SEQUENCES))
def test_keys_that_are_sequences_are_still_one_key(key: str) -> None:
    """Alone, behind other keys, and behind Esc."""
    assert keys_of(SEQUENCES[key]) == [key]
    assert keys_of(f"2{SEQUENCES[key]}j") == ["2", key, "j"]
    assert keys_of(f"\x1b{SEQUENCES[key]}") == ["escape", key]


def test_textual_reads_keys_with_it() -> None:
    """As soon as the dashboard is loaded."""
    assert console.KEYS
    assert vars(linux_driver)["XTermParser"] is EscapeParser


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with hub_process(tmp_path) as hub, SyntheticRun(hub), top(hub, tmp_path) as terminal:
        terminal.wait_for("✓ healthy", "? help")
        yield terminal


def top(hub: Hub, folder: Path) -> Terminal:
    home = str(hub.directory.path.parent.parent)
    command = ["/bin/sh", "-c", f"cd '{folder}'; exec {RANKSCOPE} top {hub.directory.run}"]
    return Terminal(command, columns=100, rows=30, env={"RANKSCOPE_HOME": home})


SEEN = {
    "1": "agent cost",
    "2": "a step",
    "3": "no collective was seen",
    "4": "replicas:",
    "5": "full at",
    "6": "late by",
    "7": "no incident so far",
    "8": "what came of saves",
    "9": "shown now",
    "s": "no stack yet",
    "v": "no open finding",
    "o": "only the table of ranks",
    "n": "no filter",
    "N": "no filter",
    "c": "commands are locked",
    "y": "was sent to",
    "t": "strong colours",
    "w": "written to",
}
"""A key, and what is seen after it on the overview."""


def shows(words: str, text: str) -> bool:
    """``words``, and no question over them."""
    return words in text and "Unlock" not in text


@pytest.mark.processes
def test_esc_and_a_digit_or_letter_in_one_write_reach_the_dashboard(terminal: Terminal) -> None:
    """Esc says no to a question, behind which no key goes; so both were heard."""
    for key, words in SEEN.items():
        terminal.press("1")
        terminal.wait_for("agent cost")
        terminal.press("u")
        terminal.wait_for("Unlock commands")
        terminal.type(f"\x1b{key}")
        terminal.wait(partial(shows, words))
    terminal.press("u")
    terminal.wait_for("Unlock commands")
    terminal.type("\x1bq")
    assert terminal.exit_code() == 0
    assert terminal.unclean() == []
