"""``rankscope status``: the run in one screen of text, or as JSON."""

from rankscope.protocol.exits import Exit
from rankscope.tui.commands.options import Endpoint, Json, Key, Run


def command(run: Run = None, json: Json = False, endpoint: Endpoint = None, key: Key = None) -> int:
    """How the run is: verdict, step, throughput, loss, ranks."""
    from rankscope.protocol import jsontext
    from rankscope.tui import source
    from rankscope.tui.text.output import write

    if json:
        print(jsontext.dumps(source.status_of(run, endpoint, key)))
        return Exit.FINE
    from rankscope.tui.text.status import status_text

    write(status_text(*source.status_and_overview(run, endpoint, key)))
    return Exit.FINE
