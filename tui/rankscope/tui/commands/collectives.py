"""``rankscope collectives``: how far the ranks of each process group are."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run, number

HELP = "process groups: who is behind, who waits in what"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--rank", type=number(0), metavar="R", help="one rank's groups and newest collectives"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import Collectives
    from rankscope.tui import source
    from rankscope.tui.text.collectives import collectives_text
    from rankscope.tui.text.output import width, write

    args: dict[str, int | str] = {} if given.rank is None else {"rank": given.rank}
    with source.open_client(given) as client:
        view = source.ask(client, "collectives", Collectives, args)
    if given.json:
        print(jsontext.dumps(view))
    else:
        write(collectives_text(view, width()))
    return Exit.FINE
