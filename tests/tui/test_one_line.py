"""Lines on stderr: what is in a path or a name is no command to the terminal."""

import pytest

from rankscope.tui.cli import main
from rankscope.tui.text.output import complain

NASTY = "/no/such \x1b[31m\x9b2J\u202e\r\n\tdir  twice/r1"


def test_an_error_is_one_line_of_what_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Blanks stay as they are: two of them may be part of a path that is to be pasted."""
    assert main(["status", NASTY]) == 2
    said = capsys.readouterr().err.removesuffix("\n")
    assert said.startswith("rankscope: no run r1 at /no/such ")
    assert "dir  twice" in said
    assert said.isprintable()


def test_a_word_beside_the_command_is_one_line_of_what_can_be_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such as where the output of the command goes."""
    complain(f"rankscope: the command's output goes to {NASTY}")
    said = capsys.readouterr().err.removesuffix("\n")
    assert "dir  twice" in said
    assert said.isprintable()
