"""``rankscope checkpoints``: how far a save is, what came of earlier ones, and of commands."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run

HELP = "a save by rank while it is written, earlier saves, and commands and what came of them"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.exits import UserError
    from rankscope.protocol.shapes import CheckpointsView
    from rankscope.tui import source
    from rankscope.tui.text.checkpoints import checkpoints_text
    from rankscope.tui.text.output import width, write

    with source.open_client(given) as client:
        reply = client.ask("checkpoints")
        source.say_if_old(client)
    view = reply.body
    if not isinstance(view, CheckpointsView):
        raise UserError("the hub's checkpoints are empty; use one rankscope version on both sides")
    if given.json:
        print(jsontext.dumps(view))
    else:
        write(checkpoints_text(view, width(), reply.hub_s))
    return Exit.FINE
