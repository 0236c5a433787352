"""``rankscope incidents``: every finding that opened or closed."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run

HELP = "the incident log: findings as they opened and closed"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import Incidents, Status
    from rankscope.tui import source
    from rankscope.tui.text.incidents import incidents_text
    from rankscope.tui.text.output import write

    with source.open_client(given) as client:
        log = source.ask(client, "incidents", Incidents)
        status = source.ask(client, "status", Status)
    if given.json:
        print(jsontext.dumps(log))
    else:
        write(incidents_text(log, status, client.run_words))
    return Exit.FINE
