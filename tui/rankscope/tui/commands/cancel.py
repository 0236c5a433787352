"""``rankscope cancel``: what an operator has asked for is not to be done."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser

HELP = "give up the request in work, or the checkpoint that is being saved"


def options(parser: OneLineParser) -> None:
    from rankscope.tui.asking import add_waiting

    add_waiting(parser, 60)


def run(given: Namespace) -> int:
    from rankscope.tui.asking import ask

    return ask(given, "cancel")
