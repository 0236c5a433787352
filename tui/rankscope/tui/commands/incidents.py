"""``rankscope incidents``: every finding that opened or closed."""

from rankscope.protocol.exits import Exit
from rankscope.tui.commands.options import Endpoint, Json, Key, Run


def command(run: Run = None, json: Json = False, endpoint: Endpoint = None, key: Key = None) -> int:
    """The incident log: findings as they opened and closed."""
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import Incidents
    from rankscope.tui import source
    from rankscope.tui.text.incidents import incidents_text
    from rankscope.tui.text.output import write

    with source.open_client(run, endpoint, key) as client:
        log = source.ask(client, "incidents", Incidents)
    if json:
        print(jsontext.dumps(log))
    else:
        write(incidents_text(log))
    return Exit.FINE
