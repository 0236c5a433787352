"""``rankscope top``: the dashboard."""

from typing import Annotated

import typer

from rankscope.protocol.exits import Exit
from rankscope.tui.commands.options import Endpoint, Key, Run


def command(
    run: Run = None,
    control: Annotated[
        bool, typer.Option("--control/--readonly", help="May give commands, or only look.")
    ] = True,
    endpoint: Endpoint = None,
    key: Key = None,
) -> int:
    """The dashboard, live or over a past run; without a terminal, the same as status."""
    from rankscope.tui import reach, source, view

    if not view.on_terminal():
        from rankscope.tui.text.output import write
        from rankscope.tui.text.status import status_text

        write(status_text(*source.status_and_overview(run, endpoint, key)))
        return Exit.FINE
    if endpoint is not None or key is not None:
        with source.open_client(run, endpoint, key) as client:
            client.ask("overview")  # a wrong key is told before the screen is taken
        assert endpoint is not None
        assert key is not None
        return view.show_remote(endpoint, key, title=endpoint, readonly=not control)
    directory = reach.choose(run)
    directory.read_info()
    return view.show(directory, title=directory.run, readonly=not control)
