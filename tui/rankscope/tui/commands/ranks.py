"""``rankscope ranks``: one line a rank."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run

HELP = "one line a rank: state, step, loss, gradient norm, memory"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.tui import source
    from rankscope.tui.text.output import width, write
    from rankscope.tui.text.ranks import ranks_text

    status = source.status_of(given)
    if given.json:
        print(jsontext.dumps({"ranks": status.ranks}))
    else:
        write(ranks_text(status, width()))
    return Exit.FINE
