"""``rankscope resume``: a paused run goes on."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser

HELP = "have a paused run go on"


def options(parser: OneLineParser) -> None:
    from rankscope.tui.asking import add_waiting

    add_waiting(parser, 60)


def run(given: Namespace) -> int:
    from rankscope.tui.asking import ask

    return ask(given, "resume")
