"""``rankscope ranks``: one line a rank."""

from rankscope.protocol.exits import Exit
from rankscope.tui.commands.options import Endpoint, Json, Key, Run


def command(run: Run = None, json: Json = False, endpoint: Endpoint = None, key: Key = None) -> int:
    """One line a rank: step, phase, loss, gradient norm, memory, link."""
    from rankscope.protocol import jsontext
    from rankscope.tui import source
    from rankscope.tui.text.output import write
    from rankscope.tui.text.ranks import ranks_text

    status = source.status_of(run, endpoint, key)
    if json:
        print(jsontext.dumps({"ranks": status.ranks}))
    else:
        write(ranks_text(status.ranks))
    return Exit.FINE
