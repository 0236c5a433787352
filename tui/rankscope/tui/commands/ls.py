"""``rankscope ls``: the runs there are."""

from rankscope.protocol.exits import Exit
from rankscope.tui.commands.options import Json


def command(json: Json = False) -> int:
    """List the runs, newest first."""
    import time

    from rankscope.protocol import jsontext
    from rankscope.protocol.rundir import runs_home
    from rankscope.tui.runs import listed
    from rankscope.tui.text.ls import ls_text
    from rankscope.tui.text.output import write

    runs = listed(runs_home())
    if json:
        print(jsontext.dumps({"runs": runs}))
    else:
        write(ls_text(runs, runs_home(), time.time()))
    return Exit.FINE
