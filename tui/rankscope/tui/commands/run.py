"""``rankscope run``: a training command with its hub."""

from argparse import Namespace
from collections.abc import Sequence

from rankscope.tui.arguments import OneLineParser, number

HELP = "start a hub, run a training command beside it, exit with the command's code"
VALUED = frozenset({"--name", "--run-id", "--bind", "--port"})


def options(parser: OneLineParser) -> None:
    parser.usage = "rankscope run [OPTIONS] -- CMD…"
    parser.add_argument(
        "--tui", action="store_true", help="show the dashboard; CMD's output goes to a file"
    )
    parser.add_argument("--name", default="", help="what to call the run on screen")
    parser.add_argument("--run-id", help="the run's id instead of a fresh one")
    parser.add_argument("--bind", metavar="ADDRESS", help="listen here instead of on loopback")
    parser.add_argument(
        "--port", type=number(1, 65535), help="listen on this port instead of a free one"
    )


def parse(parser: OneLineParser, arguments: Sequence[str]) -> Namespace:
    ours, command = split(arguments)
    given = parser.parse_args(ours)
    given.command = command
    return given


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own options, and the command: from ``--`` or from the first word that is no option.

    What follows the command's first word is not ours to read.
    """
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return list(arguments[:at]), list(arguments[at + 1 :])
        at += 2 if arguments[at] in VALUED else 1
    return list(arguments[:at]), list(arguments[at:])


def run(given: Namespace) -> int:
    from rankscope.tui.launcher.foreground import run as run_plainly
    from rankscope.tui.launcher.foreground import run_beside_dashboard

    start = run_beside_dashboard if given.tui else run_plainly
    return start(
        given.command, name=given.name, run_id=given.run_id, bind=given.bind, port=given.port
    )
