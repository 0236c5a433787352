"""``rankscope top``: the dashboard."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_run

HELP = "the dashboard, live or over a past run; without a terminal the same as status"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    rights = parser.add_mutually_exclusive_group()
    rights.add_argument(
        "--control",
        action="store_true",
        help="commands need no unlocking first; each is still asked about",
    )
    rights.add_argument(
        "--readonly", action="store_true", help="only look: commands cannot be unlocked"
    )


def run(given: Namespace) -> int:
    from rankscope.tui import reach, source, view

    if not view.on_terminal():
        from rankscope.tui.text.output import width, write
        from rankscope.tui.text.status import status_text

        write(status_text(*source.status_and_overview(given), width()))
        return Exit.FINE
    if given.endpoint is not None or given.key is not None:
        with source.open_client(given) as client:
            client.ask("overview")  # a wrong key is told before the screen is taken
        return view.show_remote(
            given.endpoint,
            given.key,
            title=given.endpoint,
            readonly=given.readonly,
            unlocked=given.control,
        )
    directory = reach.choose(given.wanted)
    reach.check(directory)
    return view.show(
        directory, title=directory.run, readonly=given.readonly, unlocked=given.control
    )
