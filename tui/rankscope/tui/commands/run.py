"""``rankscope run``: a training command with its hub."""

from typing import Annotated

import typer


def command(
    cmd: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD…", help="The training command.")
    ] = None,
    tui: Annotated[
        bool, typer.Option("--tui", help="Show the dashboard; CMD's output goes to a file.")
    ] = False,
    name: Annotated[str, typer.Option(help="What to call the run on screen.")] = "",
    run_id: Annotated[str | None, typer.Option(help="The run's id instead of a fresh one.")] = None,
    bind: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Listen here instead of on loopback.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Listen on this port, not a free one.")
    ] = None,
) -> int:
    """Start a hub, run CMD with its environment set, exit with CMD's code."""
    from rankscope.tui.launcher.foreground import run, run_beside_dashboard

    start = run_beside_dashboard if tui else run
    return start(cmd or [], name=name, run_id=run_id, bind=bind, port=port)
