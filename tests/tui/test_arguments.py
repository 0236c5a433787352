"""Reading command lines."""

from importlib import import_module

import pytest

from rankscope.protocol.exits import Exit, UserError
from rankscope.tui.arguments import OneLineParser, number
from rankscope.tui.cli import main
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


@pytest.mark.parametrize("command", ["demo", "drill", "compare", "stop", "pause", "stacks"])
def test_what_is_no_number_is_called_so_in_the_same_words(command: str) -> None:
    """Whoever reads it need not know what Python calls its types."""
    option = {"stop": "--timeout", "pause": "--minutes", "stacks": "--rank"}.get(command, "--ranks")
    module = import_module(f"rankscope.tui.commands.{command}")
    parser = OneLineParser(f"rankscope {command}", "")
    module.options(parser)
    with pytest.raises(UserError) as caught:
        parser.parse_args([option, "1.5"])
    told = f"argument {option}: '1.5' is not a whole number; see: rankscope {command} --help"
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("chekpoint", "checkpoint"), ("statsu", "status"), ("incident", "incidents"), ("xyzzy", "")],
)
def test_a_mistyped_command_is_told_which_one_is_near(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is guessed where none is."""
    assert main([typed]) == Exit.USAGE
    told = capsys.readouterr().err
    assert (f"did you mean {meant}?" in told) if meant else ("did you mean" not in told)
