"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="Run id or directory; without it the live run, else the newest."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Endpoint = Annotated[
    str | None, typer.Option("--endpoint", metavar="URL", help="tcp://HOST:PORT of a hub.")
]
Key = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Key file that goes with --endpoint.")
]
