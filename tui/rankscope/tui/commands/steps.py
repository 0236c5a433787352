"""``rankscope steps``: the newest steps over time, and who is late in them."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run, number

HELP = "phases and waiting over the newest steps, odd steps, and who is late, and where"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--rank", type=number(0), metavar="R", help="also this rank's own newest steps"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import Status, StepsView
    from rankscope.tui import source
    from rankscope.tui.text.output import width, write
    from rankscope.tui.text.steps import steps_text
    from rankscope.tui.words.blame import marks_of
    from rankscope.tui.words.steps import keeps_no_pace

    args = {} if given.rank is None else {"rank": given.rank}
    with source.open_client(given) as client:
        view = source.ask(client, "steps", StepsView, args)
        status = source.ask(client, "status", Status)
    marks = {
        rank: mark for rank, mark in marks_of(status).items() if keeps_no_pace(mark, status.state)
    }
    if given.json:
        print(jsontext.dumps(view))
    else:
        write(steps_text(view, given.rank, width(), marks))
    return Exit.FINE
