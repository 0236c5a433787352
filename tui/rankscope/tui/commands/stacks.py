"""``rankscope stacks``: where every rank is, the odd one out on top."""

import time
from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, add_run, number

HELP = "stacks of all ranks, equal ones together, the rarest on top"
WAIT_S = 1.5
"""For the ranks' answers; one that its sentinel has to read takes longest."""

POLL_S = 0.1
FRESH_S = 3.0
"""Stacks older than this were not taken for this question."""


def options(parser: OneLineParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--rank", type=number(0), metavar="R", help="one rank alone, with all its threads"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.protocol.shapes import StacksView
    from rankscope.tui import source
    from rankscope.tui.text.output import width, write
    from rankscope.tui.text.stacks import stacks_text

    args: dict[str, int | str] = {} if given.rank is None else {"rank": given.rank}
    with source.open_client(given) as client:
        if not client.replay:
            source.ask(client, "stacks", StacksView, args | {"refresh": 1})
        end_s = time.monotonic() + WAIT_S
        while True:
            view = source.ask(client, "stacks", StacksView, args)
            # A recording answers for a run that is over: nobody takes stacks anew. A hub that still
            # serves such a run has no fresh ones either.
            ages = [group.age_s for group in view.groups]
            fresh = bool(ages) and not view.missing and max(ages) <= FRESH_S
            if client.replay or fresh or time.monotonic() >= end_s:
                break
            time.sleep(POLL_S)
    if given.json:
        print(jsontext.dumps(view))
    else:
        write(stacks_text(view, width(), given.rank))
    return Exit.FINE
