"""``rankscope grant``: a key file for a colleague or a laptop, and how to use it."""

from argparse import Namespace
from pathlib import Path

from rankscope.tui.arguments import OneLineParser

HELP = "a key file to look at a run (viewer) or command it (operator) from elsewhere"


def options(parser: OneLineParser) -> None:
    parser.add_argument("role", choices=("viewer", "operator"), help="look only, or command too")
    parser.add_argument(
        "wanted",
        nargs="?",
        metavar="RUN",
        help="run id or its start, name or directory; without it the live run",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to put it (default: RUN-ROLE.json here)"
    )


def run(given: Namespace) -> int:
    from rankscope.protocol.exits import Exit, UserError
    from rankscope.protocol.keys import write_client_key
    from rankscope.protocol.rundir import hub_is_alive
    from rankscope.tui import reach
    from rankscope.tui.text.grant import grant_lines
    from rankscope.tui.text.output import write

    directory = reach.choose(given.wanted)
    info = directory.read_info()
    if info.endpoint is None or not hub_is_alive(info):
        raise UserError(
            f"run {info.run} has no live hub: there is nothing to be let in to; "
            f"rankscope replay {info.run} shows its recording",
            Exit.UNREACHABLE,
        )
    path = given.out or Path(f"{info.run}-{given.role}.json")
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists already; choose another place with --out FILE")
    try:
        write_client_key(path, directory.read_key(given.role))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose --out FILE") from None
    write(grant_lines(given.role, info.run, info.endpoint, path))
    return Exit.FINE
