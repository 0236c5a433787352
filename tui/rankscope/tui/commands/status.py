"""``rankscope status``: the run in one screen of text, or as JSON."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run

HELP = "how the run is: verdict, step, throughput, loss, ranks"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.tui import source
    from rankscope.tui.text.output import width, write
    from rankscope.tui.text.status import status_text

    if given.json:
        print(jsontext.dumps(source.status_of(given)))
    else:
        write(status_text(*source.status_and_overview(given), width()))
    return Exit.FINE
