"""``rankscope ls``: the runs there are."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json

HELP = "list the runs on this machine, newest first"


def options(parser: OneLineParser) -> None:
    add_json(parser)


def run(given: Namespace) -> int:
    import time

    from rankscope.protocol import jsontext
    from rankscope.protocol.rundir import runs_home
    from rankscope.tui.runs import listed
    from rankscope.tui.text.ls import ls_text
    from rankscope.tui.text.output import width, write

    runs = listed(runs_home())
    if given.json:
        print(jsontext.dumps({"runs": runs}))
    else:
        write(ls_text(runs, runs_home(), time.time(), width()))
    return Exit.FINE
