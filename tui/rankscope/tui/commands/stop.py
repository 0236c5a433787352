"""``rankscope stop``: have training end at one step of all ranks."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser

HELP = "have training end, all ranks after the same step"


def options(parser: OneLineParser) -> None:
    from rankscope.tui.asking import add_waiting

    add_waiting(parser)


def run(given: Namespace) -> int:
    from rankscope.tui.asking import ask

    return ask(given, "stop")
