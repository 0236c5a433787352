"""``rankscope demo``: a real training run, watched."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    trainer: Annotated[str, typer.Option(help="ddp, or fsdp2 where it is available.")] = "ddp",
    ranks: Annotated[int, typer.Option(help="Training processes.")] = 2,
    steps: Annotated[int | None, typer.Option(help="Updates of the parameters.")] = None,
    text: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Text to train on; else Python's standard library."),
    ] = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="Progress in lines instead of the dashboard.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document at the end; no dashboard.")
    ] = False,
) -> int:
    """Train a small model for real on this machine, with the dashboard on screen."""
    from rankscope.tui.demo.plan import plan
    from rankscope.tui.demo.show import show_demo

    return show_demo(plan(trainer, ranks, steps, text), headless=headless or json, json=json)
