"""``rankscope pause``: have all ranks stand still after the same step."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser, number

HELP = "have the ranks stand still after the same step, until: rankscope resume"


def options(parser: OneLineParser) -> None:
    from rankscope.tui.asking import add_waiting

    parser.add_argument(
        "--minutes",
        type=number(1, 24 * 60),
        default=30,
        metavar="N",
        help="when nobody resumes, training goes on by itself after N minutes (default 30)",
    )
    add_waiting(parser)


def run(given: Namespace) -> int:
    from rankscope.tui.asking import ask

    return ask(given, "pause", minutes=given.minutes)
