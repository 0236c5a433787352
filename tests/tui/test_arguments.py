"""Reading command lines."""

import pytest

from rankscope.protocol.exits import UserError
from rankscope.tui.arguments import OneLineParser, number
from rankscope.tui.commands.run import split


@pytest.mark.parametrize(
    ("arguments", "ours", "command"),
    [
        (["--", "python", "t.py"], [], ["python", "t.py"]),
        (["--tui", "--", "a", "--", "b"], ["--tui"], ["a", "--", "b"]),
        (["--name", "x", "a", "--name", "y"], ["--name", "x"], ["a", "--name", "y"]),
        (["--name=x", "a", "-v"], ["--name=x"], ["a", "-v"]),
        (["--port", "--", "a"], ["--port", "--"], ["a"]),
        (["--help"], ["--help"], []),
        ([], [], []),
    ],
)
def test_what_follows_the_commands_name_is_its_own(
    arguments: list[str], ours: list[str], command: list[str]
) -> None:
    """With or without ``--``, whatever the command's options are called."""
    assert split(arguments) == (ours, command)


@pytest.mark.parametrize("text", ["0", "65536", "x", "1.5", ""])
def test_a_number_out_of_range_is_refused_in_one_line(text: str) -> None:
    """With the option's name and where to read more."""
    parser = OneLineParser("rankscope run", "")
    parser.add_argument("--port", type=number(1, 65535))
    with pytest.raises(UserError, match=r"--port.*; see: rankscope run --help") as caught:
        parser.parse_args(["--port", text])
    assert "\n" not in str(caught.value)
