"""``rankscope checkpoint``: have all ranks save, at the same step, while they train on."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser

HELP = "have the ranks save a checkpoint at their next step"


def options(parser: OneLineParser) -> None:
    from rankscope.tui.asking import add_waiting

    parser.add_argument(
        "--stop", action="store_true", help="stop training once it is complete, at that very step"
    )
    add_waiting(parser)


def run(given: Namespace) -> int:
    from rankscope.tui.asking import ask

    return ask(given, "checkpoint-and-stop" if given.stop else "checkpoint")
