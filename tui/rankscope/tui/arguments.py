"""Reading a command line. argparse, since it costs a start 10 ms; errors are one line."""

import argparse
import re
from pathlib import Path
from typing import NoReturn, Protocol

from rankscope.protocol.exits import UserError


class OneLineParser(argparse.ArgumentParser):
    """Raises :class:`UserError` instead of printing its usage and leaving."""

    def __init__(self, prog: str, help_: str) -> None:
        super().__init__(prog=prog, description=help_, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{_plain(message)}; see: {self.prog} --help")


_INVALID = re.compile(r"invalid _?(?P<type>.+) value: (?P<value>.*)", re.DOTALL)
_TYPES = {"int": "whole number", "float": "number", "Path": "path"}
"""What argparse calls by the name of a function."""


def _plain(message: str) -> str:
    """``'x' is not a whole number`` for ``invalid int value: 'x'``."""
    return _INVALID.sub(
        lambda found: f"{found['value']} is not a {_TYPES.get(found['type'], found['type'])}",
        message,
    )


class Command(Protocol):
    """What a module of ``rankscope.tui.commands`` offers.

    One that reads its arguments in a way of its own also has ``parse(parser, arguments)``.
    """

    HELP: str

    def options(self, parser: OneLineParser) -> None:
        """Add the command's options."""

    def run(self, given: argparse.Namespace) -> int:
        """Do it; the exit code."""
        ...


def add_run(parser: OneLineParser) -> None:
    """``[RUN] [--endpoint URL --key FILE]``: which run is meant."""
    parser.add_argument(
        "wanted",
        nargs="?",
        metavar="RUN",
        help="run id or its start, name or directory; without it the live run, else the newest",
    )
    parser.add_argument("--endpoint", metavar="URL", help="tcp://HOST:PORT of a hub elsewhere")
    parser.add_argument("--key", type=Path, metavar="FILE", help="key file for --endpoint")


def add_json(parser: OneLineParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def number(least: int, most: int | None = None) -> "type[int]":
    """An argparse type: a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(
                f"{value} is not {f'at least {least}' if most is None else f'{least} to {most}'}"
            )
        return value

    read.__name__ = "whole number"
    return read  # type: ignore[return-value]
