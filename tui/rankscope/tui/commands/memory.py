"""``rankscope memory``: what each rank takes, whether it grows, and when it will be full."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run

HELP = "one line a rank: memory now, at most, its limit, growth, and when it will be full"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import MemoryView
    from rankscope.tui import source
    from rankscope.tui.text.memory import memory_text
    from rankscope.tui.text.output import width, write

    with source.open_client(given) as client:
        memory = source.ask(client, "memory", MemoryView)
    if given.json:
        print(jsontext.dumps(memory))
    else:
        write(memory_text(memory, width()))
    return Exit.FINE
