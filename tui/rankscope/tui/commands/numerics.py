"""``rankscope numerics``: gradients before reduction, and where a NaN came from."""

import time
from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run, number

HELP = "gradients of each rank before reduction, and what was not finite"

ANSWER_WITHIN_S = 2.0
"""A rank that is there tells of its parameters within this time."""


def options(parser: OneLineParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--rank", type=number(0), metavar="R", help="also this rank's parameters, one by one"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import Numerics, Status
    from rankscope.tui import source
    from rankscope.tui.text.numerics import numerics_text
    from rankscope.tui.text.output import width, write

    args = {} if given.rank is None else {"rank": given.rank}
    with source.open_client(given) as client:
        view = source.ask(client, "numerics", Numerics, args)
        if args and not view.parameters:
            state = source.ask(client, "status", Status).state
            until_s = time.monotonic() + ANSWER_WITHIN_S
            while state == "running" and not view.parameters and time.monotonic() < until_s:
                time.sleep(0.1)  # the hub has asked the rank
                view = source.ask(client, "numerics", Numerics, args)
    if given.json:
        print(jsontext.dumps(view))
    else:
        write(numerics_text(view, given.rank, width()))
    return Exit.FINE
